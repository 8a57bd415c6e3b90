// SPDX-License-Identifier: Apache-2.0
// The coins of rejection sampling. If this test fails, a request with a seed does not repeat its output with
// speculation off, or the output does not follow the model's distribution.
#include "kernels/keyed_coins.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace foretoken::kernels {
namespace {

TEST(KeyedCoins, AreThePhiloxBlocksOfTheirPlace) {
  KeyedCoins coins(/*key=*/7, /*sample_index=*/3);
  coins.Begin(11);
  for (uint32_t n = 0; n < 3; ++n) {
    const PhiloxBlock block = Philox4x32(7, {n, 11, 3, 2});
    const double u = std::ldexp(std::ldexp(block[0], 21) + (block[1] >> 11), -53);
    KeyedCoins here = coins;
    EXPECT_TRUE(here.Accept(std::nextafter(u, 1), 1));
    EXPECT_FALSE(coins.Accept(u, 1)) << "u < u is false";
  }
}

TEST(KeyedCoins, BeginAgainWithEveryIndex) {
  KeyedCoins first(1, 0), second(1, 0);
  const std::vector<double> weights(1000, 1.0);
  first.Begin(5);
  second.Begin(4);
  (void)second.Draw(weights);
  second.Begin(5);
  EXPECT_EQ(first.Draw(weights), second.Draw(weights));
}

TEST(KeyedCoins, DifferBySeedSampleIndexAndNumber) {
  const std::vector<double> weights(1 << 20, 1.0);
  std::set<int32_t> drawn;
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{1} << 40}) {
    for (const uint32_t sample_index : {0u, 1u}) {
      KeyedCoins coins(seed, sample_index);
      for (const uint32_t t : {0u, 1u}) {
        coins.Begin(t);
        for (int n = 0; n < 2; ++n) drawn.insert(coins.Draw(weights));
      }
    }
  }
  EXPECT_EQ(drawn.size(), 24u);
}

// Weights 1, 0, 2, 0, repeated: their sum is exact, so every u has one right answer.
TEST(IndexAt, FindsTheEntryWhereThePartOfTheSumFalls) {
  for (const size_t size : {1, 3, 4, 511, 512, 513, 4096, 10001}) {
    std::vector<double> weights(size);
    double sum = 0;
    for (size_t i = 0; i < size; ++i) sum += weights[i] = i % 4 == 0 ? 1 : i % 4 == 2 ? 2 : 0;
    double before = 0;
    for (size_t i = 0; i < size; ++i) {
      if (weights[i] == 0) continue;
      const double inside = (before + weights[i] / 2) / sum;
      ASSERT_EQ(IndexAt(weights, inside), static_cast<int32_t>(i)) << size;
      before += weights[i];
    }
    EXPECT_EQ(IndexAt(weights, 0), 0);
  }
}

TEST(IndexAt, NeverFindsAnEntryWithoutWeight) {
  std::vector<double> weights(3000, 0.0);
  weights[700] = 0.1;
  weights[1500] = 0.7;
  for (const double u : {0.0, 0.124, 0.126, 0.5, 1 - 0x1p-53}) {
    EXPECT_EQ(IndexAt(weights, u), u < 0.125 ? 700 : 1500) << u;
  }
}

}  // namespace
}  // namespace foretoken::kernels
