// SPDX-License-Identifier: Apache-2.0
#include "client/median_interval.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/check.h"

namespace foretoken::client {

MedianWithInterval MedianInterval(std::vector<double> values) {
  constexpr double kWanted = 0.95;
  FT_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  // The interval from the k-th smallest to the k-th largest value misses the median if fewer than k values lie on one
  // side of it.
  double chance = std::pow(0.5, static_cast<double>(count));  // that exactly k - 1 values lie below the median
  double missed = 2 * chance;
  size_t k = 1;
  for (; 2 * (k + 1) <= count; ++k) {
    chance *= static_cast<double>(count - k + 1) / static_cast<double>(k);
    if (1 - (missed + 2 * chance) < kWanted) break;
    missed += 2 * chance;
  }
  return {.median = (values[(count - 1) / 2] + values[count / 2]) / 2,
          .low = values[k - 1],
          .high = values[count - k],
          .confidence = std::max(0.0, 1 - missed)};
}

}  // namespace foretoken::client
