// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/planner/rank_chances.h"

#include <algorithm>

namespace foretoken::verifier {
namespace {

constexpr int32_t kPriorTrials = 4;  // the initial guess counts as this many observations
constexpr int32_t kMaxTrials = 64;   // length of a moving mean, in observations

}  // namespace

RankChances::RankChances(int32_t max_nodes) : num_trials_(max_nodes, kPriorTrials) {
  // The initial guess fits a tree in which one path of a few nodes is right.
  for (int32_t rank = 0; rank < max_nodes; ++rank) hit_rates_.push_back(1.0f / static_cast<float>(rank + 2));
  chances_ = hit_rates_;
}

void RankChances::Observe(int32_t num_rows, std::span<const int32_t> emitted_ranks) {
  const auto num_known = std::min<size_t>(static_cast<size_t>(num_rows) + 1, hit_rates_.size());
  for (size_t rank = 0; rank < num_known; ++rank) {
    const bool is_hit = std::find(emitted_ranks.begin(), emitted_ranks.end(), rank) != emitted_ranks.end();
    num_trials_[rank] = std::min(num_trials_[rank] + 1, kMaxTrials);
    hit_rates_[rank] += ((is_hit ? 1.0f : 0.0f) - hit_rates_[rank]) / static_cast<float>(num_trials_[rank]);
  }
  float lowest = 1;
  for (size_t rank = 0; rank < hit_rates_.size(); ++rank) {
    lowest = std::min(lowest, hit_rates_[rank]);
    chances_[rank] = lowest;
  }
}

}  // namespace foretoken::verifier
