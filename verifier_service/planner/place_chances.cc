// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/planner/place_chances.h"

#include <algorithm>

namespace foretoken::verifier {
namespace {

constexpr int32_t kPlacePriorTrials = 4;  // the initial guess counts as this many observations
constexpr int32_t kMaxPlaceTrials = 64;   // length of a moving mean, in observations

}  // namespace

PlaceChances::PlaceChances(int32_t max_nodes) : num_trials_(max_nodes, kPlacePriorTrials) {
  // The initial guess fits a tree in which one path of a few nodes is right.
  for (int32_t place = 0; place < max_nodes; ++place) hit_rates_.push_back(1.0f / static_cast<float>(place + 2));
  chances_ = hit_rates_;
}

void PlaceChances::Observe(int32_t num_rows, std::span<const int32_t> emitted_places) {
  const auto num_known = std::min<size_t>(static_cast<size_t>(num_rows) + 1, hit_rates_.size());
  for (size_t place = 0; place < num_known; ++place) {
    const bool is_hit = std::find(emitted_places.begin(), emitted_places.end(), place) != emitted_places.end();
    num_trials_[place] = std::min(num_trials_[place] + 1, kMaxPlaceTrials);
    hit_rates_[place] += ((is_hit ? 1.0f : 0.0f) - hit_rates_[place]) / static_cast<float>(num_trials_[place]);
  }
  float lowest = 1;
  for (size_t place = 0; place < hit_rates_.size(); ++place) {
    lowest = std::min(lowest, hit_rates_[place]);
    chances_[place] = lowest;
  }
}

}  // namespace foretoken::verifier
