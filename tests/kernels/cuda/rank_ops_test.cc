// SPDX-License-Identifier: Apache-2.0
// The ops that combine the results of tensor-parallel ranks, and weights that are split over ranks. If this test fails,
// a model on several GPUs emits wrong tokens.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/cases/rank_cases.h"

namespace foretoken::kernels::cuda {
namespace {

using testing::DistinctElements;
using testing::RandomValues;

using SumRanksTest = OnDevice;
using JoinColumnsTest = OnDevice;
using ShardedWeightTest = OnDevice;
using ShardedEmbedTest = OnDevice;

TEST_F(SumRanksTest, AddsInTheOrderOfTheRanksAndNoOther) {
  testing::ExpectSumsInRankOrder([&](const SumRanksArgs& args) { RunSumRanks(args); });
}

TEST_F(SumRanksTest, MayOverwriteTheFirstPiece) {
  testing::ExpectSumInItsFirstPiece([&](const SumRanksArgs& args) { RunSumRanks(args); });
}

TEST_F(JoinColumnsTest, PutsColumnsOfDifferentWidthsSideBySide) {
  testing::ExpectJoinedColumns([&](const JoinColumnsArgs& args) { RunJoinColumns(args); });
}

// Embed reads a weight's rows in any layout, so it shows the weight's elements.
TEST_F(ShardedWeightTest, HasTheRequestedInputs) {
  const std::vector<uint16_t> bf16 = DistinctElements(40 * 70);
  const std::vector<float> f32 = RandomValues(5).Normals(8 * 70);
  const std::vector<ConstTensorView> parts = {{bf16.data(), DType::kBF16, Shape(15, 70)},
                                              {f32.data(), DType::kF32, Shape(8, 70)},
                                              {bf16.data() + 15 * 70, DType::kBF16, Shape(25, 70)}};
  size_t num_released = 0;
  const auto weight = PrepareWeight({.parts = parts,
                                     .inputs = IndexRange{.begin = 19, .end = 56},
                                     .release = [&](const void*, size_t num_bytes) { num_released += num_bytes; }},
                                    device());
  ASSERT_EQ(weight->out_features(), 48);
  ASSERT_EQ(weight->in_features(), 37);
  EXPECT_EQ(num_released, bf16.size() * sizeof(uint16_t) + f32.size() * sizeof(float));
  std::vector<int32_t> rows(48);
  for (int32_t i = 0; i < 48; ++i) rows[i] = i;
  std::vector<float> out(48 * 37);
  RunEmbed({.weight = weight.get(), .token_ids = rows.data(), .out = {out.data(), DType::kF32, Shape(48, 37)}});
  for (int64_t row = 0; row < 48; ++row) {
    for (int64_t i = 0; i < 37; ++i) {
      const bool is_f32 = row >= 15 && row < 23;
      const int64_t bf16_row = row < 15 ? row : row - 8;
      const uint16_t expected = is_f32 ? Bf16FromFloat(f32[(row - 15) * 70 + 19 + i]) : bf16[bf16_row * 70 + 19 + i];
      ASSERT_EQ(out[row * 37 + i], FloatFromBf16(expected)) << row << " " << i;
    }
  }
}

TEST_F(ShardedEmbedTest, GivesZerosForIdsOfOtherRanks) {
  const std::vector<uint16_t> values = DistinctElements(40 * 70);
  const auto weight = Prepare({values.data(), DType::kBF16, Shape(40, 70)});
  testing::ExpectZerosOfIdsThatAreNotHeld(values, 70, [&](EmbedArgs args) {
    args.weight = weight.get();
    RunEmbed(args);
  });
}

}  // namespace
}  // namespace foretoken::kernels::cuda
