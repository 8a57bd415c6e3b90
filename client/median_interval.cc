// SPDX-License-Identifier: Apache-2.0
#include "client/median_interval.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "kernels/check.h"

namespace foretoken::client {
namespace {

// The chance that exactly `num_below` of `count` values lie below the true median. Its factors leave the range of a
// double where the chance itself does not, so they are multiplied as logarithms.
double ChanceOf(size_t num_below, size_t count) {
  const auto n = static_cast<double>(count);
  const auto k = static_cast<double>(num_below);
  return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) - n * std::numbers::ln2);
}

}  // namespace

MedianWithInterval MedianInterval(std::vector<double> values) {
  constexpr double kWanted = 0.95;
  FT_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  // The interval from the k-th smallest to the k-th largest value misses the median if fewer than k values lie on one
  // side of it.
  double missed = 2 * ChanceOf(0, count);
  size_t k = 1;
  for (; 2 * (k + 1) <= count; ++k) {
    const double more = 2 * ChanceOf(k, count);
    if (1 - (missed + more) < kWanted) break;
    missed += more;
  }
  return {.median = (values[(count - 1) / 2] + values[count / 2]) / 2,
          .low = values[k - 1],
          .high = values[count - k],
          .confidence = std::max(0.0, 1 - missed)};
}

}  // namespace foretoken::client
