// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/drafter_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace foretoken::proposer {
namespace {

constexpr uint64_t kMinTrials = 200;

std::string Shifted(std::vector<int32_t> layers, int32_t by) {
  for (int32_t& layer : layers) layer = std::max(layer + by, 0);
  return absl::StrJoin(layers, ",");
}

}  // namespace

std::optional<std::string> DrafterWatch::Observe(uint64_t num_trials, uint64_t num_hits) {
  if (has_judged_ || num_trials < kMinTrials) return std::nullopt;
  has_judged_ = true;
  if (static_cast<double>(num_hits) >= kMinHitRate * static_cast<double>(num_trials)) return std::nullopt;
  std::string line = absl::StrCat(
      "the target took ", num_hits, " of ", num_trials,
      " tokens from the drafter's best four guesses; a head that fits its target gives more "
      "than half, unless requests allow few tokens or draw from far down. Is it a head of another target?");
  if (!layers_.empty()) {
    absl::StrAppend(&line, " It reads the inputs of layers ", absl::StrJoin(layers_, ","),
                    ". If its file means their outputs, start it with --feature_layers=", Shifted(layers_, 1),
                    "; if the file was taken for that wrongly, with --feature_layers=", Shifted(layers_, -1),
                    ". A trial on the target finds out: --try_on_target, with memory for the target");
  }
  return line;
}

}  // namespace foretoken::proposer
