// SPDX-License-Identifier: Apache-2.0
// foretoken explain: runs one request and prints a report of each of its steps. It prints after the request has ended,
// so that printing does not disturb the times. The verifier must allow step reports.
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/color_flag.h"
#include "client/commands/commands.h"
#include "client/commands/connect_flags.h"
#include "client/commands/interrupt.h"
#include "client/commands/prompts.h"
#include "client/commands/request_flags.h"
#include "client/explain/step_summary.h"
#include "client/explain/step_text.h"
#include "client/proto_json.h"
#include "client/terminal.h"
#include "client/timed_generation.h"
#include "client/token_texts.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(int, unplanned_nodes, 4, "Number of guesses without a row to show for each step, the likeliest first");

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerateResponse;

std::string ToJsonText(const Generation& generation) {
  nlohmann::ordered_json json = {{"request_id", generation.request_id}, {"samples", nlohmann::ordered_json::array()}};
  for (const Sample& sample : generation.samples) {
    nlohmann::ordered_json steps = nlohmann::ordered_json::array();
    for (const foretoken::v1::StepReport& step : sample.steps) steps.push_back(ToJson(step));
    json["samples"].push_back({{"text", sample.text}, {"steps", std::move(steps)}});
  }
  return JsonText(json);
}

void Print(const Generation& generation, const TokenTexts& texts, const StepTextOptions& options) {
  std::cout << TreeLegend();
  for (size_t i = 0; i < generation.samples.size(); ++i) {
    if (generation.samples.size() > 1) std::cout << "\n--- sample " << i << "\n";
    for (const foretoken::v1::StepReport& step : generation.samples[i].steps) {
      std::cout << "\n" << StepText(step, texts, options);
    }
    std::cout << "\n" << ToText(Summarise(generation.samples[i].steps)) << std::flush;
  }
}

// Most servers do not allow step reports, and only their operators can change that. So the error says how.
absl::Status WithAdvice(const absl::Status& status) {
  if (!absl::StartsWith(status.message(), "speculation.report_steps:")) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "\nTo explain requests, start foretoken_verifier ",
                                                  "with --allow_step_reports."));
}

absl::Status Explain(const std::vector<std::string>& arguments) {
  FT_ASSIGN_OR_RETURN(const bool color, ColorFromFlags());
  const StepTextOptions options = {.color = color, .num_unplanned_nodes = absl::GetFlag(FLAGS_unplanned_nodes)};
  if (options.num_unplanned_nodes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--unplanned_nodes: expected at least 0, got ", options.num_unplanned_nodes));
  }
  FT_ASSIGN_OR_RETURN(GenerateRequest request, RequestFromFlags());
  FT_RETURN_IF_ERROR(SetPromptFromFlags(arguments, request));
  request.mutable_speculation()->set_report_steps(true);
  Cancellation cancellation;
  const InterruptWatcher interrupt(cancellation);
  FT_ASSIGN_OR_RETURN(GenerationClient client, ConnectFromFlags({}, &cancellation));

  const TimedGeneration timed = GenerateTimed(
      client, request, [](const GenerateResponse&) {}, &cancellation);
  const Generation& generation = timed.generation;  // explained also after an error or an interrupt
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << ToJsonText(generation) << std::endl;
  } else if (!generation.samples.empty()) {
    const absl::StatusOr<TokenTexts> texts = FetchTokenTexts(client, request.model(), generation);
    Print(generation, texts.value_or(TokenTexts()), options);
  }
  return WithAdvice(timed.status);
}

}  // namespace

int RunExplain(const std::vector<std::string>& arguments) { return ExitCode(Explain(arguments)); }

}  // namespace foretoken::client
