// SPDX-License-Identifier: Apache-2.0
// The G-test, the likelihood-ratio form of the chi-square test of fit. It tests counts against a distribution.
//
//   const GTestResult result = GTest(counts, probabilities);
//   EXPECT_GE(result.p_value, alpha) << result;
//
// If no expectation is small, G = 2 sum observed ln(observed / expected) is nearly chi-square distributed, with one
// degree of freedom fewer than cells. So cells that expect fewer than kMinExpected counts are pooled into one cell. If
// the pooled cell still expects fewer, it joins the kept cell of the smallest expectation. A cell of probability 0 is
// never pooled: a count in it is impossible under the distribution, so the p-value is 0.
//
// Source: Sokal and Rohlf, "Biometry", chapter 17; the survival function is the regularised incomplete gamma function
// by its series and its continued fraction (Abramowitz and Stegun, 6.5.29 and 6.5.31).
#pragma once

#include <cstdint>
#include <ostream>
#include <span>

namespace foretoken::testing {

struct GTestResult {
  static constexpr double kMinExpected = 5;

  double statistic = 0;  // G
  int num_cells = 0;     // after pooling
  int64_t num_counts = 0;
  double p_value = 1;  // chance of a G at least this large under the distribution; 1 if only one cell is left
};

std::ostream& operator<<(std::ostream& out, const GTestResult& result);

// One count per cell, and the probability of each cell; they sum to 1.
GTestResult GTest(std::span<const int64_t> counts, std::span<const double> probabilities);

// Pr[X >= statistic], X chi-square distributed; statistic >= 0, degrees_of_freedom > 0.
double ChiSquareSurvival(double statistic, double degrees_of_freedom);

}  // namespace foretoken::testing
