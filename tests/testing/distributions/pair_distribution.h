// SPDX-License-Identifier: Apache-2.0
// The distribution of two consecutive tokens, and a test of samples against it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tests/testing/distributions/g_test.h"

namespace foretoken::testing {

using Pair = std::pair<int32_t, int32_t>;

// Pr[first, second] = first[first] second[first][second]. The second token's distribution is known only after likely
// first tokens.
struct PairDistribution {
  std::vector<double> first;                      // [V]
  std::map<int32_t, std::vector<double>> second;  // [V] by first token
};

// A G-test over joint outcomes. Pairs that expect fewer than GTestResult::kMinExpected samples are pooled per first
// token. First tokens that expect too few samples are pooled as in GTest. An impossible pair is never pooled.
GTestResult TestPairs(const std::vector<Pair>& pairs, const PairDistribution& distribution);

// Tests pairs whose two tokens should come from one distribution, independently of each other.
GTestResult TestIndependentPairs(const std::vector<Pair>& pairs, const std::vector<double>& distribution);

}  // namespace foretoken::testing
