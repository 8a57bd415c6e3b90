// SPDX-License-Identifier: Apache-2.0
// The distribution of two tokens in a row, and whether samples could have come from it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tests/testing/distributions/g_test.h"

namespace foretoken::testing {

using Pair = std::pair<int32_t, int32_t>;

// Pr[first, second] = first[first] second[first][second]. The second token's distribution is known below likely first
// ones only.
struct PairDistribution {
  std::vector<double> first;                      // [V]
  std::map<int32_t, std::vector<double>> second;  // [V] by first token
};

// A G-test over joint outcomes. A pair that expects fewer than GTestResult::kMinExpected samples is counted with the
// others of its first token; first tokens that expect too few are pooled as GTest does. An impossible pair is never
// pooled.
GTestResult TestPairs(const std::vector<Pair>& pairs, const PairDistribution& distribution);

// Of pairs whose tokens should be drawn from one distribution independently of each other.
GTestResult TestIndependentPairs(const std::vector<Pair>& pairs, const std::vector<double>& distribution);

}  // namespace foretoken::testing
