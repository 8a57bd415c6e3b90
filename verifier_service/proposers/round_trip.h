// SPDX-License-Identifier: Apache-2.0
// A running estimate of the 90th percentile of answer times. Each sample moves the estimate up or down by a fixed
// ratio. The two ratios balance at the 90th percentile. No samples are stored.
#pragma once

#include <algorithm>
#include <optional>

#include "absl/time/time.h"

namespace foretoken::verifier {

class RoundTripEstimate {
 public:
  void Add(absl::Duration sample) {
    if (!p90_.has_value()) {
      p90_ = std::max(sample, kFloor);
    } else {
      p90_ = std::max(*p90_ * (sample > *p90_ ? kUp : kDown), kFloor);
    }
  }

  // Unset before the first sample.
  std::optional<absl::Duration> p90() const { return p90_; }

 private:
  static constexpr absl::Duration kFloor = absl::Microseconds(10);
  static constexpr double kUp = 1.09417;     // e^0.09
  static constexpr double kDown = 0.990050;  // e^-0.01: nine steps down undo one step up
  std::optional<absl::Duration> p90_;
};

}  // namespace foretoken::verifier
