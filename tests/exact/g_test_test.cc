// SPDX-License-Identifier: Apache-2.0
// The statistics under the exactness suite. If this test fails, the suite accepts a wrong distribution or rejects a
// right one.
#include "tests/testing/distributions/g_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {
namespace {

constexpr double kAlphaOfOneTest = 1e-4;

// Returns a distribution that is `excess` higher at the first cell and lower at the second.
std::vector<double> Distribution(double excess) {
  return {.3 + excess, .25 - excess, .2, .15, .06, .03, .009, .0009, .0001, 0};
}

std::vector<int64_t> SampleOf(const std::vector<double>& distribution, int num_samples, uint32_t seed) {
  RandomValues random(seed);
  std::vector<int64_t> counts(distribution.size());
  for (int i = 0; i < num_samples; ++i) {
    double left = random.Uniform();
    size_t cell = 0;
    while (left >= distribution[cell] && distribution[cell + 1] > 0) left -= distribution[cell++];
    ++counts[cell];
  }
  return counts;
}

// With 2k degrees of freedom the survival function is the chance of fewer than k events of a Poisson distribution.
TEST(ChiSquareSurvival, IsThePoissonSumForEvenDegreesOfFreedom) {
  for (const int k : {1, 2, 5, 30, 200}) {
    for (const double ratio : {.01, .3, .8, .99, 1.01, 1.2, 2., 4.}) {
      const double mean = ratio * k;
      double sum = 0;
      for (int j = 0; j < k; ++j) sum += std::exp(j * std::log(mean) - mean - std::lgamma(j + 1));
      // The error is absolute for sums of size 1, and relative if the tail is small.
      EXPECT_NEAR(ChiSquareSurvival(2 * mean, 2 * k), sum, 1e-11 * std::min(1., sum * 1e2)) << k << " " << ratio;
    }
  }
}

TEST(ChiSquareSurvival, IsTheNormalTailForOneDegreeOfFreedom) {
  for (const double deviations : {.1, .5, 1., 2., 3., 5., 8.}) {
    const double tail = std::erfc(deviations / std::sqrt(2.));
    EXPECT_NEAR(ChiSquareSurvival(deviations * deviations, 1), tail, 1e-11 * std::min(1., tail * 1e2)) << deviations;
  }
}

// Critical values from printed tables.
TEST(ChiSquareSurvival, ReproducesTables) {
  EXPECT_NEAR(ChiSquareSurvival(3.841458820694124, 1), .05, 1e-12);
  EXPECT_NEAR(ChiSquareSurvival(18.307038053275146, 10), .05, 1e-12);
  EXPECT_NEAR(ChiSquareSurvival(11.344866730144373, 3), .01, 1e-12);
  EXPECT_NEAR(ChiSquareSurvival(149.4493, 100), .001, 1e-7);
  EXPECT_EQ(ChiSquareSurvival(0, 7), 1);
}

TEST(GTest, IsTheFormulaWithoutPooling) {
  const std::vector<int64_t> counts = {30, 50, 20};
  const std::vector<double> probabilities = {.25, .5, .25};
  const GTestResult result = GTest(counts, probabilities);
  EXPECT_EQ(result.num_cells, 3);
  EXPECT_NEAR(result.statistic, 2 * (30 * std::log(30 / 25.) + 20 * std::log(20 / 25.)), 1e-12);
  EXPECT_NEAR(result.p_value, std::exp(-result.statistic / 2), 1e-12);
}

TEST(GTest, PoolsCellsOfSmallExpectation) {
  // Of 100 counts the last three cells expect 4, 3 and 2, and 9 together.
  EXPECT_EQ(GTest(std::vector<int64_t>{60, 31, 4, 3, 2}, std::vector<double>{.6, .31, .04, .03, .02}).num_cells, 3);
  // The last cell alone expects 2, so it joins the second.
  const GTestResult joined = GTest(std::vector<int64_t>{60, 40, 0}, std::vector<double>{.6, .38, .02});
  EXPECT_EQ(joined.num_cells, 2);
  EXPECT_EQ(joined.p_value, 1);
}

TEST(GTest, ACountInAnImpossibleCellIsProof) {
  EXPECT_EQ(GTest(std::vector<int64_t>{500000, 499999, 1}, std::vector<double>{.5, .5, 0}).p_value, 0);
  EXPECT_GT(GTest(std::vector<int64_t>{500000, 500000, 0}, std::vector<double>{.5, .5, 0}).p_value, .99);
}

TEST(GTest, AcceptsTheDistributionThatTheSamplesCameFrom) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    EXPECT_GE(GTest(SampleOf(Distribution(0), 20000, seed), Distribution(0)).p_value, kAlphaOfOneTest / 20) << seed;
  }
}

// A p-value is uniform under the distribution: of 400, the share below .05 is .05 within 4 standard deviations of .011.
TEST(GTest, RejectsTheTrueDistributionAsOftenAsItSays) {
  int num_rejected = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    if (GTest(SampleOf(Distribution(0), 2000, seed), Distribution(0)).p_value < .05) ++num_rejected;
  }
  EXPECT_GT(num_rejected, 400 * (.05 - 4 * .011));
  EXPECT_LT(num_rejected, 400 * (.05 + 4 * .011));
}

TEST(GTest, RejectsADistributionThatIsALittleWrong) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    EXPECT_LT(GTest(SampleOf(Distribution(.03), 20000, seed), Distribution(0)).p_value, kAlphaOfOneTest) << seed;
  }
}

}  // namespace
}  // namespace foretoken::testing
