// SPDX-License-Identifier: Apache-2.0
// The mask of a row, entry by entry; draw_row_test.cc compares all adjustments together with the reference. If this
// test fails, a server emits banned tokens, or takes a broken row for a good one.
#include "kernels/cpu/draw/adjust_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/testing/cases/for_each_isa.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cpu {
namespace {

using testing::ForEachIsa;
using testing::kInfinity;
using testing::RandomValues;

TEST(AdjustRow, AMaskKeepsOnlyTheTokensOfItsBits) {
  ForEachIsa([] {
    RandomValues random(3);
    for (const int32_t num_tokens : {1, 7, 31, 32, 33, 63, 64, 100, 1000}) {
      const std::vector<float> logits = random.Normals(num_tokens, 3);
      for (const double chance : {0.0, 0.1, 0.5, 1.0}) {
        std::vector<uint32_t> mask((num_tokens + 31) / 32);
        for (int32_t bit = 0; bit < mask.size() * 32; ++bit) {
          mask[bit / 32] |= static_cast<uint32_t>(random.Coin(chance)) << bit % 32;
        }
        const auto row = AdjustRow({.logits = logits, .sampling = {}, .mask = mask.data()});
        ASSERT_EQ(row.size(), logits.size());
        for (int32_t id = 0; id < num_tokens; ++id) {
          const bool is_allowed = (mask[id / 32] >> id % 32 & 1) != 0;
          ASSERT_EQ(row[id], is_allowed ? logits[id] : -kInfinity) << num_tokens << " " << id;
        }
      }
    }
  });
}

TEST(AdjustRow, NothingLiftsAMaskedToken) {
  const std::vector<float> logits(40, 1);
  const std::vector<uint32_t> mask = {~2u, ~2u};  // without 1 and 33
  const std::vector<LogitBias> bias = {{1, 100}, {33, 3e38f}};
  const std::vector<TokenCount> counts = {{1, 2}, {33, 0}};
  const SamplingParams sampling{.repetition_penalty = 0.1f, .presence_penalty = -2, .frequency_penalty = -2};
  const auto row =
      AdjustRow({.logits = logits, .sampling = sampling, .bias = bias, .counts = counts, .mask = mask.data()});
  EXPECT_EQ(row[1], -kInfinity);
  EXPECT_EQ(row[33], -kInfinity);
  EXPECT_EQ(row[0], 1);
}

TEST(AdjustRow, NonFiniteLogitsShowThroughAMask) {
  ForEachIsa([] {
    for (const size_t id : {0, 5, 31, 32, 37}) {
      std::vector<float> logits(38, 0);
      const std::vector<uint32_t> mask(2, 0);
      logits[id] = kInfinity;
      EXPECT_EQ(AdjustRow({.logits = logits, .sampling = {}, .mask = mask.data()})[id], kInfinity);
      logits[id] = std::nanf("");
      EXPECT_TRUE(std::isnan(AdjustRow({.logits = logits, .sampling = {}, .mask = mask.data()})[id]));
    }
  });
}

TEST(AdjustRow, ARowThatNothingChangesIsNotCopied) {
  const std::vector<float> logits = {1, 2};
  const std::vector<TokenCount> counts = {{1, 2}};
  EXPECT_EQ(AdjustRow({.logits = logits, .sampling = {}, .counts = counts}).data(), logits.data());
}

}  // namespace
}  // namespace foretoken::kernels::cpu
