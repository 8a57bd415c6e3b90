// SPDX-License-Identifier: Apache-2.0
// How long to stay away after failures: doubled each time, capped, and spread so that peers do not come back in step.
#pragma once

#include <algorithm>
#include <cmath>

#include "absl/time/time.h"

namespace foretoken::verifier {

struct Backoff {
  absl::Duration initial = absl::Milliseconds(100);
  absl::Duration max = absl::Seconds(5);
};

// After the `num_failures`-th failure in a row, from 1. `unit_random` in [0, 1) picks a point in the upper half.
inline absl::Duration BackoffDelay(const Backoff& backoff, int num_failures, double unit_random) {
  const double factor = std::exp2(std::clamp(num_failures - 1, 0, 30));
  return std::min(backoff.initial * factor, backoff.max) * (0.5 + 0.5 * unit_random);
}

}  // namespace foretoken::verifier
