// SPDX-License-Identifier: Apache-2.0
// The delay after failures in a row. It doubles each time, has a maximum, and is random, so that many clients do not
// return at the same moment.
#pragma once

#include <algorithm>
#include <cmath>

#include "absl/time/time.h"

namespace foretoken::verifier {

struct Backoff {
  absl::Duration initial = absl::Milliseconds(100);
  absl::Duration max = absl::Seconds(5);
};

// Returns the delay after `num_failures` failures in a row, from 1. `unit_random` in [0, 1) picks a point in the upper
// half of the interval.
inline absl::Duration BackoffDelay(const Backoff& backoff, int num_failures, double unit_random) {
  const double factor = std::exp2(std::clamp(num_failures - 1, 0, 30));
  return std::min(backoff.initial * factor, backoff.max) * (0.5 + 0.5 * unit_random);
}

}  // namespace foretoken::verifier
