// SPDX-License-Identifier: Apache-2.0
// foretoken generate: streams one request's text to standard output; its numbers go to standard error.
#include <unistd.h>

#include <iostream>
#include <map>

#include "absl/flags/flag.h"
#include "absl/time/clock.h"
#include "client/color_flag.h"
#include "client/commands.h"
#include "client/connect_flags.h"
#include "client/generation_stats.h"
#include "client/interrupt.h"
#include "client/prompts.h"
#include "client/proto_json.h"
#include "client/request_flags.h"
#include "client/terminal.h"
#include "client/text_attribution.h"
#include "client/timed_generation.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerateResponse;

enum class Style { kPlain, kVisibleControls, kColor };

absl::StatusOr<Style> StyleFromFlags() {
  FT_ASSIGN_OR_RETURN(const bool has_color, ColorFromFlags());
  if (has_color) return Style::kColor;
  return isatty(STDOUT_FILENO) == 1 ? Style::kVisibleControls : Style::kPlain;
}

// Prints text as it comes; of several samples each as a whole when it ends, because they would mix.
class Printer {
 public:
  Printer(Style style, bool has_many_samples) : style_(style), has_many_samples_(has_many_samples) {}

  void Print(const GenerateResponse& response) {
    if (response.has_prompt()) std::cout << Show({.text = response.prompt().text()}) << std::flush;
    std::string shown;
    for (const TextRun& run : attributions_[response.sample_index()].Append(response)) shown += Show(run);
    if (!has_many_samples_) {
      std::cout << shown << std::flush;
      return;
    }
    held_[response.sample_index()] += shown;
    if (!response.has_completion()) return;
    std::cout << "--- sample " << response.sample_index() << "\n" << held_[response.sample_index()] << std::endl;
  }

 private:
  std::string Show(const TextRun& run) const {
    return style_ == Style::kPlain ? run.text : ForTerminal(run, style_ == Style::kColor);
  }

  const Style style_;
  const bool has_many_samples_;
  std::map<uint32_t, TextAttribution> attributions_;  // by sample
  std::map<uint32_t, std::string> held_;
};

nlohmann::ordered_json SampleToJson(const Sample& sample) {
  nlohmann::ordered_json json = {{"text", sample.text},
                                 {"token_ids", sample.token_ids},
                                 {"speculated", sample.speculated},
                                 {"text_ends", sample.text_ends}};
  for (const auto& logprobs : sample.logprobs) json["logprobs"].push_back(ToJson(logprobs));
  if (sample.completion.has_value()) json["completion"] = ToJson(*sample.completion);
  return json;
}

std::string ToJsonText(const TimedGeneration& timed, const GenerationStats& stats) {
  nlohmann::ordered_json json = {{"request_id", timed.generation.request_id}};
  if (timed.generation.prompt.has_value()) json["prompt"] = ToJson(*timed.generation.prompt);
  json["samples"] = nlohmann::ordered_json::array();
  for (const Sample& sample : timed.generation.samples) json["samples"].push_back(SampleToJson(sample));
  json["stats"] = ToJson(stats);
  return json.dump(2);
}

absl::Status Generate(const std::vector<std::string>& arguments) {
  FT_ASSIGN_OR_RETURN(const Style style, StyleFromFlags());
  FT_ASSIGN_OR_RETURN(GenerateRequest request, RequestFromFlags());
  FT_RETURN_IF_ERROR(SetPromptFromFlags(arguments, request));
  Cancellation cancellation;
  const InterruptWatcher interrupt(cancellation);
  FT_ASSIGN_OR_RETURN(GenerationClient client, ConnectFromFlags());

  const bool is_json = absl::GetFlag(FLAGS_json);
  Printer printer(style, request.sampling().n() > 1);
  const absl::Time start = absl::Now();
  const TimedGeneration timed = GenerateTimed(
      client, request, [&](const GenerateResponse& response) { is_json ? void() : printer.Print(response); },
      &cancellation);
  const GenerationStats stats = Summarise({&timed, 1}, absl::Now() - start);
  if (is_json) {
    std::cout << ToJsonText(timed, stats) << std::endl;
  } else {
    std::cout << std::endl;
    if (stats.num_tokens > 0) std::cerr << ToLine(stats) << std::endl;
  }
  return timed.status;
}

}  // namespace

int RunGenerate(const std::vector<std::string>& arguments) { return ExitCode(Generate(arguments)); }

}  // namespace foretoken::client
