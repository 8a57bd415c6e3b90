// SPDX-License-Identifier: Apache-2.0
// The functions for noise and weights. They round alike on every machine, so results on the host hold on a GPU. If this
// test fails, a GPU server draws from a wrong distribution, or tests on emulated GPUs prove nothing.
#include "kernels/cuda/draw/token_noise.cuh"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/draw/fixed_weight.cuh"
#include "tests/reference/sampling.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cuda {
namespace {

// Both ends, every power of two, and many words between.
std::vector<uint32_t> ManyWords() {
  std::vector<uint32_t> words = {0, 1, 2, 3, 0xffffffff, 0xfffffffe, 0xffffff00, 0xffffff7f, 0xffffff80, 0xffffff81};
  for (int bit = 2; bit < 32; ++bit) {
    for (const uint32_t offset : {0u, 1u, ~0u}) words.push_back((uint32_t{1} << bit) + offset);
  }
  testing::RandomValues random(1);
  for (int i = 0; i < 200000; ++i) words.push_back(static_cast<uint32_t>(random.Uniform() * 0x1p32));
  return words;
}

double ExactGumbel(uint32_t word) {
  const double u = std::min(static_cast<float>(word + 0.5) * 0x1p-32, 1 - 0x1p-24);
  return -std::log(-std::log1p(-u));
}

TEST(TokenNoise, IsGumbelNoiseWithinItsError) {
  for (const uint32_t word : ManyWords()) {
    const double exact = ExactGumbel(word);
    ASSERT_NEAR(GumbelOf(word), exact, 0x1p-21 + 4 * 0x1p-23 * std::abs(exact)) << word;
  }
}

TEST(TokenNoise, IsNeverAboveItsBounds) {
  for (const uint32_t word : ManyWords()) {
    ASSERT_LE(GumbelOf(word), GumbelBound(word)) << word;
    ASSERT_LT(GumbelOf(word), kLargestNoise) << word;
  }
}

// A looser bound costs more logarithms. The bound may lose only the difference between u and E = -log(1 - u).
TEST(TokenNoise, RareWordsHaveBoundsThatAreClose) {
  for (uint32_t word = 1003; word < uint32_t{1} << 28; word += 100003) {
    ASSERT_LT(GumbelBound(word), GumbelOf(word) + 0.15f) << word;
  }
}

TEST(TokenNoise, ATokensWordIsThatOfTheReference) {
  const SamplingParams sampling{.seed = 0x123456789abcdef0, .sample_index = 3};
  RowTask task = TaskOf(sampling, 1000);
  task.t = 77;
  for (int32_t id = 0; id < 1000; ++id) {
    ASSERT_NEAR(NoiseOf(task, id), reference::TokenNoise(sampling, 77, static_cast<uint32_t>(id)), 1e-5) << id;
  }
}

TEST(FixedWeight, IsTheExponentialRoundedDown) {
  testing::RandomValues random(2);
  for (int i = 0; i < 200000; ++i) {
    const float x = static_cast<float>(-35 * random.Uniform());
    const double exact = std::exp(double{x}) * kWeightOne;
    ASSERT_NEAR(static_cast<double>(WeightOf(x, 0, 1)), exact, 1 + 0x1p-22 * exact) << x;
  }
}

TEST(FixedWeight, IsOneForTheLargestLogitAndZeroForAnImpossibleToken) {
  EXPECT_EQ(WeightOf(-7.25f, -7.25f, 1e5f), FixedWeight{1} << 44);
  EXPECT_EQ(WeightOf(kImpossible, 3, 1), 0);
  EXPECT_EQ(WeightOf(-3e38f, 3e38f, 1), 0);
}

TEST(FixedWeight, NeverGrowsWithTheDistance) {
  FixedWeight before = FixedWeight{1} << 44;
  for (float x = 0; x > -32; x -= 1e-4f) {
    const FixedWeight weight = WeightOf(x, 0, 1);
    ASSERT_LE(weight, before + (before >> 22)) << x;  // except for rounding
    before = weight;
  }
}

}  // namespace
}  // namespace foretoken::kernels::cuda
