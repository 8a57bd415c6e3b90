// SPDX-License-Identifier: Apache-2.0
// foretoken generate: streams one request's text to standard output, and prints its statistics to standard error.
#include <iostream>
#include <map>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/commands/commands.h"
#include "client/commands/connect_flags.h"
#include "client/commands/interrupt.h"
#include "client/commands/output_style.h"
#include "client/commands/prompts.h"
#include "client/commands/request_flags.h"
#include "client/commands/traced_call.h"
#include "client/generation_stats.h"
#include "client/logprob_text.h"
#include "client/proto_json.h"
#include "client/terminal.h"
#include "client/text_attribution.h"
#include "client/timed_generation.h"
#include "client/token_texts.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerateResponse;

// Prints text as it comes. Several samples are printed one after another, because their texts would mix: the first
// unfinished sample is printed as it comes, and later samples wait for their turn.
class Printer {
 public:
  Printer(OutputStyle style, bool has_many_samples) : style_(style), has_many_samples_(has_many_samples) {}

  void Print(const GenerateResponse& response) {
    if (response.has_prompt()) Write(Show({.text = response.prompt().text()}, style_));
    Held& held = samples_[response.sample_index()];
    for (const TextRun& run : held.attribution.Append(response)) held.text += Show(run, style_);
    held.has_ended |= response.has_completion();
    while (PrintHeld(current_)) ++current_;
    std::cout << std::flush;
  }

  // Prints the rest of all samples. After an early end of the call, later samples may still wait. A refused request has
  // printed nothing, not even a line.
  void Finish() {
    for (const auto& [index, held] : samples_) PrintHeld(index);
    if (has_printed_) std::cout << std::endl;
  }

 private:
  struct Held {
    TextAttribution attribution;
    std::string text;  // not printed yet
    bool has_begun = false;
    bool has_ended = false;
  };

  // Prints the held text of a sample. Returns whether the sample is complete.
  bool PrintHeld(uint32_t index) {
    const auto found = samples_.find(index);
    if (found == samples_.end()) return false;
    Held& held = found->second;
    if (has_many_samples_ && !held.has_begun && (held.has_ended || !held.text.empty())) {
      Write(absl::StrCat(is_in_line_ ? "\n" : "", "--- sample ", index, "\n"));
      held.has_begun = true;
    }
    Write(std::exchange(held.text, {}));
    return held.has_ended;
  }

  void Write(absl::string_view text) {
    std::cout << text;
    if (text.empty()) return;
    has_printed_ = true;
    is_in_line_ = text.back() != '\n';
  }

  const OutputStyle style_;
  const bool has_many_samples_;
  std::map<uint32_t, Held> samples_;
  uint32_t current_ = 0;  // the first unfinished sample
  bool has_printed_ = false;
  bool is_in_line_ = false;  // the last printed line has no end yet
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

std::string ToJsonText(const TimedGeneration& timed, const GenerationStats& stats, const std::string& trace_id) {
  nlohmann::ordered_json json = {{"request_id", timed.generation.request_id}};
  if (!trace_id.empty()) json["trace_id"] = trace_id;
  if (timed.generation.prompt.has_value()) json["prompt"] = ToJson(*timed.generation.prompt);
  json["samples"] = nlohmann::ordered_json::array();
  for (const Sample& sample : timed.generation.samples) json["samples"].push_back(SampleToJson(sample));
  json["stats"] = ToJson(stats);
  return JsonText(json);
}

absl::Status Generate(const std::vector<std::string>& arguments) {
  FT_ASSIGN_OR_RETURN(const OutputStyle style, OutputStyleFromFlags());
  FT_ASSIGN_OR_RETURN(GenerateRequest request, RequestFromFlags());
  FT_RETURN_IF_ERROR(SetPromptFromFlags(arguments, request));
  Cancellation cancellation;
  const InterruptWatcher interrupt(cancellation);
  FT_ASSIGN_OR_RETURN(const std::unique_ptr<TracedCall> trace, TracedCall::FromFlags());
  const auto end_trace = [&trace](const absl::Status& status) {
    if (trace != nullptr) trace->End(status);
  };
  const auto print_trace = [&trace] {
    if (trace != nullptr) std::cerr << "trace " << trace->trace_id() << std::endl;
  };
  absl::StatusOr<GenerationClient> connected =
      ConnectFromFlags(trace == nullptr ? Metadata() : trace->metadata(), &cancellation);
  if (!connected.ok()) {
    end_trace(connected.status());
    print_trace();
    return connected.status();
  }
  GenerationClient& client = *connected;

  const bool is_json = absl::GetFlag(FLAGS_json);
  Printer printer(style, request.sampling().n() > 1);
  const absl::Time start = SteadyNow();
  const TimedGeneration timed = GenerateTimed(
      client, request, [&](const GenerateResponse& response) { is_json ? void() : printer.Print(response); },
      &cancellation);
  end_trace(timed.status);
  const GenerationStats stats = Summarise({&timed, 1}, SteadyNow() - start);
  if (is_json) {
    std::cout << ToJsonText(timed, stats, trace == nullptr ? "" : trace->trace_id()) << std::endl;
  } else {
    printer.Finish();
    if (timed.status.ok() && HasLogprobs(timed.generation)) {
      const absl::StatusOr<TokenTexts> texts = FetchTokenTexts(client, request.model(), timed.generation);
      std::cerr << LogprobText(timed.generation, texts.value_or(TokenTexts()));
    }
    if (stats.num_tokens > 0) std::cerr << ToLine(stats) << std::endl;
    print_trace();
  }
  return timed.status;
}

}  // namespace

int RunGenerate(const std::vector<std::string>& arguments) { return ExitCode(Generate(arguments)); }

}  // namespace foretoken::client
