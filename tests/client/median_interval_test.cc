// SPDX-License-Identifier: Apache-2.0
// If these tests fail, `foretoken bench --compare` calls noise a speedup, or a speedup noise.
#include "client/median_interval.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/testing/cases/random_values.h"

namespace foretoken::client {
namespace {

TEST(MedianInterval, OfSixValuesReachesFromTheSmallestToTheLargest) {
  const MedianWithInterval found = MedianInterval({0.97, 1.01, 1.02, 0.99, 1.00, 1.03});
  EXPECT_DOUBLE_EQ(found.median, 1.005);
  EXPECT_DOUBLE_EQ(found.low, 0.97);
  EXPECT_DOUBLE_EQ(found.high, 1.03);
  EXPECT_DOUBLE_EQ(found.confidence, 1 - 2.0 / 64);
}

// From tables of the binomial distribution: for 9 values the second from each end (1 - 2 * 10 / 512), for 32 the tenth.
TEST(MedianInterval, TakesTheNarrowestPairThatIsSureEnough) {
  std::vector<double> values;
  for (int i = 1; i <= 9; ++i) values.push_back(i);
  const MedianWithInterval nine = MedianInterval(values);
  EXPECT_EQ(nine.median, 5);
  EXPECT_EQ(nine.low, 2);
  EXPECT_EQ(nine.high, 8);
  EXPECT_DOUBLE_EQ(nine.confidence, 1 - 20.0 / 512);
  for (int i = 10; i <= 32; ++i) values.push_back(i);
  const MedianWithInterval many = MedianInterval(values);
  EXPECT_EQ(many.median, 16.5);
  EXPECT_EQ(many.low, 10);
  EXPECT_EQ(many.high, 23);
  EXPECT_GE(many.confidence, 0.95);
}

// The chance that all values lie on one side, 2^-2000, is too small for a double. By whole numbers without rounding the
// interval is from the 956th to the 1,045th value, with a confidence of 0.95345.
TEST(MedianInterval, OfThousandsOfValuesDoesNotCollapse) {
  std::vector<double> values(2000);
  std::iota(values.begin(), values.end(), 1);
  const MedianWithInterval found = MedianInterval(values);
  EXPECT_EQ(found.median, 1000.5);
  EXPECT_EQ(found.low, 956);
  EXPECT_EQ(found.high, 1045);
  EXPECT_NEAR(found.confidence, 0.95345, 1e-5);
}

TEST(MedianInterval, OfTooFewValuesHasLessConfidence) {
  EXPECT_DOUBLE_EQ(MedianInterval({1, 2, 3}).confidence, 0.75);
  EXPECT_DOUBLE_EQ(MedianInterval({1}).confidence, 0);
  EXPECT_EQ(MedianInterval({1, 2, 3}).low, 1);
  EXPECT_EQ(MedianInterval({1, 2, 3}).high, 3);
}

// With 4,000 trials, 0.01 is three standard deviations of the share.
TEST(MedianInterval, ContainsTheTrueMedianAsOftenAsStated) {
  testing::RandomValues random(1);
  constexpr int kNumTrials = 4000;
  int num_held = 0;
  double confidence = 0;
  for (int trial = 0; trial < kNumTrials; ++trial) {
    std::vector<double> values;
    for (int i = 0; i < 12; ++i) values.push_back(random.Uniform() * random.Uniform());
    const MedianWithInterval found = MedianInterval(values);
    constexpr double kTrueMedian = 0.18668;  // x (1 - ln x) = 1/2
    if (found.low <= kTrueMedian && kTrueMedian <= found.high) ++num_held;
    confidence = found.confidence;
  }
  EXPECT_NEAR(static_cast<double>(num_held) / kNumTrials, confidence, 0.01);
}

}  // namespace
}  // namespace foretoken::client
