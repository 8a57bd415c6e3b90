// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/first_token_forecast.h"

#include <algorithm>

namespace foretoken::verifier {
namespace {

constexpr uint64_t kLeastLeft = 32;  // entries that leave the line during a measurement of its pace
constexpr int64_t kOptimism = 2;     // how much faster than lately everything may be

}  // namespace

void FirstTokenForecast::ObserveLine(uint64_t num_left, bool has_waiting, absl::Time now) {
  if (!has_waiting) {
    mark_.reset();
    pace_ns_.store(0);
    return;
  }
  if (!mark_.has_value()) mark_ = Mark{.time = now, .num_left = num_left};
  const uint64_t num_left_since = num_left - mark_->num_left;
  if (num_left_since < kLeastLeft) return;
  pace_ns_.store(absl::ToInt64Nanoseconds(now - mark_->time) / static_cast<int64_t>(num_left_since));
  mark_ = Mark{.time = now, .num_left = num_left};
}

absl::Duration FirstTokenForecast::LeastWait(int64_t num_ahead) const {
  const int64_t num_waits = std::max<int64_t>(0, num_ahead - max_running_);
  return absl::Nanoseconds(num_waits * pace_ns_.load() + step_ns_.load()) / kOptimism;
}

absl::Duration LeastPromptTime(int32_t num_rows, int32_t max_rows, const StepCost& cost) {
  const float full_ms = static_cast<float>(num_rows / max_rows) * cost.Predict({.num_rows = max_rows});
  const int32_t rest = num_rows % max_rows;
  return absl::Milliseconds(full_ms + (rest > 0 ? cost.Predict({.num_rows = rest}) : 0)) / kOptimism;
}

}  // namespace foretoken::verifier
