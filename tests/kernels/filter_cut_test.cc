// SPDX-License-Identifier: Apache-2.0
// Where filters cut a row, at the edges; draw_row_test.cc holds them against the reference all together.
#include "kernels/cpu/filter_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/top_tokens.h"
#include "tests/testing/for_each_isa.h"
#include "tests/testing/random_values.h"

namespace foretoken::kernels::cpu {
namespace {

using testing::ForEachIsa;
using testing::RandomValues;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(TopTokens, OrdersByValueThenId) {
  ForEachIsa([] {
    RandomValues random(9);
    for (const int32_t num_tokens : {1, 10, 1000, 5000, 40000}) {
      std::vector<float> row = random.Normals(num_tokens, 2);
      for (float& value : row) value = random.Coin(0.1) ? -kInfinity : std::round(value * 8) / 8;
      std::vector<RankedToken> all;
      for (int32_t id = 0; id < num_tokens; ++id) {
        if (row[id] > -kInfinity) all.push_back({row[id], id});
      }
      std::sort(all.begin(), all.end());
      for (const size_t count : {size_t{1}, size_t{20}, size_t{3000}, size_t{50000}}) {
        const auto top = TopTokens(row, count);
        ASSERT_EQ(top.size(), std::min(count, all.size()));
        for (size_t i = 0; i < top.size(); ++i)
          ASSERT_EQ(top[i].id, all[i].id) << num_tokens << " " << count << " " << i;
      }
    }
  });
}

TEST(FindCut, MinPKeepsTheLeastValueThatIsLikelyEnough) {
  RandomValues random(10);
  for (int i = 0; i < 1000; ++i) {
    const float max = random.Normal() * 20;
    const SamplingParams sampling{.temperature = static_cast<float>(0.01 + random.Uniform()),
                                  .min_p = static_cast<float>(random.Uniform())};
    const std::vector<float> row = {max};
    const float least = FindCut(row, max, sampling).value;
    const double bound = max + std::log(double{sampling.min_p}) * sampling.temperature;
    EXPECT_GE(least, bound);
    EXPECT_LT(std::nextafter(least, -kInfinity), bound);
  }
}

// Near zero there are a billion floats between a bound and its rounding: nothing may walk over them.
TEST(FindCut, MinPTakesNoLongerWhereItsBoundIsZero) {
  const std::vector<float> row = {std::log(2.0f), 0, -1};
  const FilterCut cut = FindCut(row, row[0], {.min_p = 0.5f});
  EXPECT_NEAR(cut.value, 0, 0x1p-24);
  EXPECT_TRUE(cut.Keeps(row[0], 0));
  EXPECT_FALSE(cut.Keeps(row[2], 2));
}

TEST(FindCut, MinPOfATinyShareKeepsAll) {
  const std::vector<float> row = {0, -3e38f};
  const FilterCut cut = FindCut(row, 0, {.temperature = 1e38f, .min_p = 1e-30f});
  EXPECT_TRUE(cut.Keeps(row[1], 1));
}

// The sum of a block with and without tokens too small to matter can differ by one rounding, which is as much as a
// top_p next to 1 leaves out.
TEST(FindCut, TopPNextToOneKeepsAllLikelyTokens) {
  ForEachIsa([] {
    RandomValues random(1);
    for (const size_t stride : {4, 8, 16}) {
      for (int round = 0; round < 300; ++round) {
        std::vector<float> row(1024);
        double total = 0;
        for (size_t id = 0; id < row.size(); ++id) {
          row[id] = static_cast<float>(random.Uniform());
          if (id % stride != 0) total += std::exp(row[id]);
        }
        const auto tail = static_cast<float>(std::log(0x1p-24 * total / 1024) - 0.01);
        for (size_t id = 0; id < row.size(); id += stride) row[id] = tail;
        const float max = *std::max_element(row.begin(), row.end());
        const FilterCut cut = FindCut(row, max, {.top_p = 1 - 0x1p-24f});
        for (size_t id = 0; id < row.size(); ++id) {
          if (id % stride == 0) continue;
          ASSERT_TRUE(cut.Keeps(row[id], static_cast<int32_t>(id))) << round << " " << id;
        }
      }
    }
  });
}

}  // namespace
}  // namespace foretoken::kernels::cpu
