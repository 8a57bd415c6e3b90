// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "tests/bench/serving/mixed_prompts.h"
#include "tests/bench/serving/parts.h"
#include "tests/bench/serving/rounds.h"

namespace foretoken::bench {
namespace {

// The single proposers come first.
const std::vector<std::vector<std::string>> kProposers = {
    {"ngram"}, {"suffix"}, {"draft"}, {"suffix", "draft"}, {"ngram", "suffix", "draft"}};
constexpr size_t kNumSingle = 3;

std::vector<double> AcceptedRatios(const std::vector<Turn>& a, const std::vector<Turn>& b) {
  return Ratios(a, b, [](const Turn& turn) { return std::max(AcceptedPerStep(turn), 1e-3); });
}

}  // namespace

absl::Status MeasureMerging(Setup& setup, Findings* findings) {
  FT_ASSIGN_OR_RETURN(ServiceProcesses* const service, setup.Costly());
  std::vector<Way> ways;
  for (const std::vector<std::string>& methods : kProposers) {
    ways.push_back({.name = absl::StrJoin(methods, "+"), .service = service, .speculation = SpeculationBy(methods)});
  }
  FT_ASSIGN_OR_RETURN(const std::vector<std::string> edited,
                      setup.EditedFiles(std::min<size_t>(setup.prompts().size(), setup.options().is_short ? 2 : 8)));
  const auto requests =
      MakeRequests(MixedPrompts(setup.prompts(), edited), /*temperature=*/0, setup.options().max_tokens);
  FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, requests, {.round_size = kPromptKinds, .label = "merging"}));
  size_t best = 0;
  for (size_t w = 0; w < ways.size(); ++w) {
    const double accepted = AcceptedPerStep(Sum(rounds.by_way[w]));
    findings->Add({.what = absl::StrCat("accepted per step on mixed prompts, ", ways[w].name),
                   .value = accepted,
                   .unit = "tokens"});
    if (w < kNumSingle && accepted > AcceptedPerStep(Sum(rounds.by_way[best]))) best = w;
  }
  for (size_t w = kNumSingle; w < ways.size(); ++w) {
    Finding finding = MedianFinding(absl::StrCat("  ", ways[w].name, " against ", ways[best].name),
                                    client::MedianInterval(AcceptedRatios(rounds.by_way[w], rounds.by_way[best])), "x");
    finding.at_least = 1;
    findings->Add(finding);
  }
  return absl::OkStatus();
}

}  // namespace foretoken::bench
