// SPDX-License-Identifier: Apache-2.0
// A histogram of durations with bounds from a tenth of a millisecond to ten seconds.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace foretoken::verifier {

struct DurationHistogram {
  static constexpr std::array<double, 16> kBoundsSeconds = {.0001, .0002, .0005, .001, .002, .005, .01, .02,
                                                            .05,   .1,    .2,    .5,   1,    2,    5,   10};

  void Add(absl::Duration duration) {
    const double seconds = absl::ToDoubleSeconds(duration);
    const auto bound = std::lower_bound(kBoundsSeconds.begin(), kBoundsSeconds.end(), seconds);
    ++buckets[static_cast<size_t>(bound - kBoundsSeconds.begin())];
    sum_seconds += seconds;
  }

  std::array<uint64_t, kBoundsSeconds.size() + 1> buckets = {};  // [i]: up to kBoundsSeconds[i]; last: above all bounds
  double sum_seconds = 0;
};

}  // namespace foretoken::verifier
