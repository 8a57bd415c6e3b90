// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/distributions/g_test.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/check.h"

namespace foretoken::testing {
namespace {

constexpr double kPrecision = 1e-15;  // relative, at which the sums below stop

// x^a e^-x / Gamma(a + 1), in logarithms because each factor alone may overflow.
double LeadingTerm(double a, double x) { return std::exp(a * std::log(x) - x - std::lgamma(a + 1)); }

// P(a, x) = x^a e^-x / Gamma(a + 1) * (1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ...).
double LowerGammaSeries(double a, double x) {
  double term = 1, sum = 1;
  for (double n = a + 1; term > kPrecision * sum; ++n) {
    term *= x / n;
    sum += term;
  }
  return LeadingTerm(a, x) * sum;
}

// Q(a, x) = x^a e^-x / Gamma(a) * 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - ...))), from the
// left by Lentz's method: `denominator` and `numerator` are ratios of successive convergents' parts.
double UpperGammaFraction(double a, double x) {
  double b = x + 1 - a;
  double numerator = std::numeric_limits<double>::infinity();
  double denominator = 1 / b;
  double fraction = denominator;
  for (int n = 1;; ++n) {
    const double coefficient = n * (a - n);
    b += 2;
    denominator = 1 / (b + coefficient * denominator);
    numerator = b + coefficient / numerator;
    fraction *= numerator * denominator;
    if (std::abs(numerator * denominator - 1) < kPrecision) return LeadingTerm(a, x) * a * fraction;
  }
}

struct Cell {
  double count = 0;
  double expected = 0;
};

// Pools cells as the header describes.
std::vector<Cell> Pool(std::span<const int64_t> counts, std::span<const double> probabilities, double num_counts) {
  std::vector<Cell> cells;
  Cell pool;
  for (size_t i = 0; i < counts.size(); ++i) {
    const Cell cell = {.count = static_cast<double>(counts[i]), .expected = num_counts * probabilities[i]};
    if (cell.expected >= GTestResult::kMinExpected) {
      cells.push_back(cell);
    } else {
      pool.count += cell.count;
      pool.expected += cell.expected;
    }
  }
  if (pool.expected == 0) return cells;
  if (pool.expected >= GTestResult::kMinExpected || cells.empty()) {
    cells.push_back(pool);
  } else {
    Cell& smallest = *std::ranges::min_element(cells, {}, &Cell::expected);
    smallest.count += pool.count;
    smallest.expected += pool.expected;
  }
  return cells;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const GTestResult& result) {
  return out << "G = " << result.statistic << " over " << result.num_cells << " cells of " << result.num_counts
             << " counts, p = " << result.p_value;
}

double ChiSquareSurvival(double statistic, double degrees_of_freedom) {
  FT_CHECK(statistic >= 0 && degrees_of_freedom > 0);
  const double a = degrees_of_freedom / 2, x = statistic / 2;
  if (x == 0) return 1;
  // Each form converges quickly on its side.
  return x < a + 1 ? 1 - LowerGammaSeries(a, x) : UpperGammaFraction(a, x);
}

GTestResult GTest(std::span<const int64_t> counts, std::span<const double> probabilities) {
  FT_CHECK(counts.size() == probabilities.size());
  FT_CHECK(std::abs(std::accumulate(probabilities.begin(), probabilities.end(), 0.0) - 1) < 1e-9);
  GTestResult result = {.num_counts = std::accumulate(counts.begin(), counts.end(), int64_t{0})};
  const std::vector<Cell> cells = Pool(counts, probabilities, static_cast<double>(result.num_counts));
  result.num_cells = static_cast<int>(cells.size());
  for (size_t i = 0; i < counts.size(); ++i) {
    if (probabilities[i] > 0 || counts[i] == 0) continue;
    result.statistic = std::numeric_limits<double>::infinity();
    result.p_value = 0;
    return result;
  }
  for (const Cell& cell : cells) {
    if (cell.count > 0) result.statistic += 2 * cell.count * std::log(cell.count / cell.expected);
  }
  result.statistic = std::max(result.statistic, 0.0);  // rounding may give a negative sum if all cells fit exactly
  if (cells.size() > 1) result.p_value = ChiSquareSurvival(result.statistic, static_cast<double>(cells.size() - 1));
  return result;
}

}  // namespace foretoken::testing
