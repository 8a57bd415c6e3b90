// SPDX-License-Identifier: Apache-2.0
// foretoken perplexity: how well a model predicts a text, before it was quantised and after.
#include <algorithm>
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/commands.h"
#include "client/commands/offline_flags.h"
#include "client/commands/prompts.h"
#include "client/offline/perplexity.h"
#include "client/terminal.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(std::string, baseline, "",
          "The checkpoint to compare with, as it is stored; default: --model itself, if a flag quantises it");
ABSL_FLAG(int32_t, window, 512, "Tokens that the model sees at a time; those of a window's second half are scored");

namespace foretoken::client {
namespace {

struct Scored {
  std::string name;
  std::vector<TokenScore> scores;
};

absl::StatusOr<Scored> Score(const OfflineModel& options, absl::string_view text) {
  FT_ASSIGN_OR_RETURN(model::RunnableModel model, LoadOffline(options));
  FT_ASSIGN_OR_RETURN(std::vector<TokenScore> scores, ScoreText(model, text, absl::GetFlag(FLAGS_window)));
  return Scored{.name = Describe(options, model), .scores = std::move(scores)};
}

nlohmann::ordered_json ToJson(const Scored& scored) {
  const TextSummary summary = Summarize(scored.scores);
  return {{"model", scored.name},
          {"tokens", scored.scores.size()},
          {"perplexity", summary.perplexity},
          {"standard_error", summary.standard_error}};
}

void PrintRow(const Scored& scored) {
  const TextSummary summary = Summarize(scored.scores);
  std::cout << absl::StrFormat("%9.4f ± %.4f  %s\n", summary.perplexity, summary.standard_error, scored.name);
}

void Print(const Scored& after, const std::optional<Scored>& before) {
  nlohmann::ordered_json json = {{"after", ToJson(after)}};
  if (before.has_value()) {
    const TextComparison change = Compare(before->scores, after.scores);
    json["before"] = ToJson(*before);
    json["change"] = {
        {"ratio", change.ratio}, {"standard_error", change.standard_error}, {"same_likeliest", change.same_likeliest}};
    if (!absl::GetFlag(FLAGS_json)) {
      PrintRow(*before);
      PrintRow(after);
      std::cout << absl::StrFormat("%+.2f %% ± %.2f %%; the likeliest token is the same for %.2f %% of %d tokens\n",
                                   100 * (change.ratio - 1), 100 * change.standard_error, 100 * change.same_likeliest,
                                   after.scores.size());
    }
  } else if (!absl::GetFlag(FLAGS_json)) {
    PrintRow(after);
  }
  if (absl::GetFlag(FLAGS_json)) std::cout << JsonText(json) << std::endl;
}

absl::Status Perplexity(const std::vector<std::string>& arguments) {
  if (arguments.size() != 1) return absl::InvalidArgumentError("expected one argument: a file with text, or -");
  FT_ASSIGN_OR_RETURN(const OfflineModel options, OfflineModelFromFlags());
  FT_ASSIGN_OR_RETURN(const std::string text, ReadText("FILE", arguments.front()));
  const std::string baseline = absl::GetFlag(FLAGS_baseline);
  std::optional<Scored> before;
  if (!baseline.empty() || QuantizesAtLoad()) {
    OfflineModel plain = options;
    plain.backend.quantization = {};
    if (!baseline.empty()) plain.path = baseline;
    FT_ASSIGN_OR_RETURN(before, Score(plain, text));
  }
  FT_ASSIGN_OR_RETURN(const Scored after, Score(options, text));
  if (before.has_value() &&
      !std::ranges::equal(before->scores, after.scores, {}, &TokenScore::token_id, &TokenScore::token_id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--baseline: expected a model with the same tokens of this text, got ", before->scores.size(),
                     " scored tokens and ", after.scores.size(), ", which are others"));
  }
  Print(after, before);
  return absl::OkStatus();
}

}  // namespace

int RunPerplexity(const std::vector<std::string>& arguments) { return ExitCode(Perplexity(arguments)); }

}  // namespace foretoken::client
