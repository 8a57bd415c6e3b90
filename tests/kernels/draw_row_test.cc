// SPDX-License-Identifier: Apache-2.0
// Drawing from a row: the cases of tests/testing/cases/draw_cases.h on every instruction set, and the distribution of
// many draws. If this test fails, a CPU server draws wrong tokens.
#include "kernels/cpu/draw/draw_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/reference/sampling.h"
#include "tests/testing/cases/draw_cases.h"
#include "tests/testing/cases/for_each_isa.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cpu {
namespace {

using reference::DrawInputs;
using testing::ForEachIsa;
using testing::kInfinity;
using testing::RandomValues;

testing::DrawnToken Draw(const DrawInputs& inputs) {
  const RowDraw draw = DrawRow({.logits = inputs.logits,
                                .sampling = inputs.sampling,
                                .bias = inputs.bias,
                                .counts = inputs.counts,
                                .path_token_ids = inputs.path_token_ids,
                                .mask = inputs.mask.empty() ? nullptr : inputs.mask.data()},
                               inputs.t);
  return {draw.status, draw.token_id};
}

TEST(DrawRow, EqualsTheReferenceUnderAllFiltersTogether) {
  ForEachIsa([] { testing::ExpectTheReferencesDraws(Draw, 3000); });
}

TEST(DrawRow, EqualsTheReferenceOnALargeVocabulary) {
  ForEachIsa([] { testing::ExpectTheReferencesDrawsOnALargeVocabulary(Draw, 4); });
}

TEST(DrawRow, BreaksTiesByTheLowestId) {
  ForEachIsa([] { testing::ExpectTiesToGoToTheLowestId(Draw); });
}

TEST(DrawRow, DrawsFromARowOfOneValue) {
  ForEachIsa([] { testing::ExpectDrawsFromARowOfOneValue(Draw, 8); });
}

TEST(DrawRow, SumsThatOverflowDoNotMakeARowNonFinite) {
  ForEachIsa([] { testing::ExpectSumsThatOverflowToBeFinite(Draw); });
}

TEST(DrawRow, FindsTheMaximumInEveryPlace) {
  ForEachIsa([] { testing::ExpectTheMaximumInEveryPlace(Draw, 40); });
}

TEST(DrawRow, ReportsNonFiniteLogitsWhereverTheyStand) {
  ForEachIsa([] { testing::ExpectNonFiniteLogitsToShow(Draw); });
}

TEST(DrawRow, ReportsAnEmptySupport) { testing::ExpectAnEmptySupportToShow(Draw); }

TEST(DrawRow, IgnoresIdsOutsideTheVocabulary) { testing::ExpectIdsOutsideTheVocabularyToBeIgnored(Draw); }

// Upper quantile of chi-square by Wilson and Hilferty's approximation; z = 3.719 leaves 1e-4 above.
double ChiSquareLimit(double degrees_of_freedom) {
  const double spread = 2 / (9 * degrees_of_freedom);
  return degrees_of_freedom * std::pow(1 - spread + 3.719 * std::sqrt(spread), 3);
}

double ChiSquare(const DrawInputs& shape, const std::vector<double>& probabilities, int num_draws) {
  DrawInputs inputs = shape;
  std::vector<int> counts(inputs.logits.size());
  for (inputs.t = 0; inputs.t < num_draws; ++inputs.t) ++counts[Draw(inputs).token_id];
  double sum = 0;
  for (size_t id = 0; id < counts.size(); ++id) {
    if (probabilities[id] == 0) {
      if (counts[id] != 0) return kInfinity;
      continue;
    }
    const double expected = probabilities[id] * num_draws;
    sum += (counts[id] - expected) * (counts[id] - expected) / expected;
  }
  return sum;
}

TEST(DrawRow, FollowsTheSoftmaxOverManyPositions) {
  RandomValues random(7);
  DrawInputs inputs;
  inputs.logits = random.Normals(37, 1);
  inputs.sampling = {.temperature = 0.8f, .seed = 42};
  constexpr int kNumDraws = 200000;
  const std::vector<double> target = reference::FilteredDistribution(inputs);
  EXPECT_LT(ChiSquare(inputs, target, kNumDraws), ChiSquareLimit(36));
  // The control: the test notices a slightly different temperature.
  DrawInputs control = inputs;
  control.sampling.temperature = 0.83f;
  EXPECT_GT(ChiSquare(inputs, reference::FilteredDistribution(control), kNumDraws), ChiSquareLimit(36));
}

TEST(DrawRow, FollowsTheTruncatedDistribution) {
  RandomValues random(8);
  DrawInputs inputs;
  inputs.logits = random.Normals(200, 2);
  inputs.sampling = {.top_k = 30, .top_p = 0.9f, .min_p = 0.02f, .seed = 43};
  const std::vector<double> target = reference::FilteredDistribution(inputs);
  const auto num_kept = std::count_if(target.begin(), target.end(), [](double p) { return p > 0; });
  ASSERT_GT(num_kept, 3);
  EXPECT_LT(ChiSquare(inputs, target, 100000), ChiSquareLimit(static_cast<double>(num_kept - 1)));
}

}  // namespace
}  // namespace foretoken::kernels::cpu
