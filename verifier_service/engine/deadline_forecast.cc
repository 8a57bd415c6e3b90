// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/deadline_forecast.h"

#include <algorithm>

namespace foretoken::verifier {
namespace {

constexpr uint64_t kLeastLeft = 32;      // entries that leave the line during a measurement of its pace
constexpr int64_t kOptimism = 2;         // how much faster than lately everything may be
constexpr double kKeptPart = 15.0 / 16;  // of a moving sum, with every run

}  // namespace

void DeadlineForecast::ObserveLine(uint64_t num_left, bool has_waiting, absl::Time now) {
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

void DeadlineForecast::ObserveStep(int32_t num_rows, absl::Duration length) {
  const int64_t step_ns = std::max<int64_t>(1, absl::ToInt64Nanoseconds(length));
  if (least_step_ns_.load() == 0 || step_ns < least_step_ns_.load()) least_step_ns_.store(step_ns);
  if (num_rows >= max_step_rows_) least_full_step_ = std::min(length, least_full_step_.value_or(length));
}

void DeadlineForecast::ObserveRun(int32_t num_tokens, absl::Duration length) {
  if (num_tokens == 0) return;  // as of a request that is refused at its turn
  run_time_ = kKeptPart * run_time_ + length;
  run_tokens_ = kKeptPart * run_tokens_ + num_tokens;
}

absl::Duration DeadlineForecast::LeastWait(int64_t num_ahead) const {
  const int64_t num_waits = std::max<int64_t>(0, num_ahead - max_running_);
  return absl::Nanoseconds(num_waits * pace_ns_.load() + least_step_ns_.load()) / kOptimism;
}

absl::Duration DeadlineForecast::LeastPromptTime(int32_t num_rows) const {
  const int32_t num_full = num_rows / max_step_rows_;
  return num_full * least_full_step_.value_or(absl::ZeroDuration()) / kOptimism;
}

absl::Duration DeadlineForecast::RunTime(double num_tokens) const {
  return run_tokens_ > 0 ? num_tokens / run_tokens_ * run_time_ : absl::ZeroDuration();
}

}  // namespace foretoken::verifier
