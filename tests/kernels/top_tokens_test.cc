// SPDX-License-Identifier: Apache-2.0
// The first tokens of a row in order. If this test fails, top_k keeps wrong tokens, or a response lists wrong top
// log-probabilities.
#include "kernels/cpu/draw/top_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/testing/cases/for_each_isa.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cpu {
namespace {

using testing::ForEachIsa;
using testing::kInfinity;
using testing::RandomValues;

TEST(TopTokens, OrdersByValueThenId) {
  ForEachIsa([] {
    RandomValues random(9);
    for (const int32_t num_tokens : {1, 10, 1000, 5000, 40000}) {
      std::vector<float> row = random.Normals(num_tokens, 2);
      for (float& value : row) value = random.Coin(0.1) ? -kInfinity : std::round(value * 8) / 8;
      std::vector<OrderedToken> all;
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

TEST(TopTokens, TakesTheLowestIdsOfARowOfOneValue) {
  ForEachIsa([] {
    const std::vector<float> row(40000, 2.0f);
    for (const size_t count : {1, 70, 1000}) {
      const auto top = TopTokens(row, count);
      ASSERT_EQ(top.size(), count);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(top[i].id, static_cast<int32_t>(i));
    }
  });
}

}  // namespace
}  // namespace foretoken::kernels::cpu
