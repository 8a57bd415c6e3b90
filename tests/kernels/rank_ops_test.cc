// SPDX-License-Identifier: Apache-2.0
// The ops that combine the results of tensor-parallel ranks, and weights that are split over ranks. If this test fails,
// a tensor-parallel CPU server emits wrong tokens.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cpu/embed.h"
#include "kernels/cpu/join_columns.h"
#include "kernels/cpu/matmul/weight.h"
#include "kernels/cpu/sum_ranks.h"
#include "tests/testing/cases/rank_cases.h"

namespace foretoken::kernels::cpu {
namespace {

using testing::DistinctElements;

TEST(SumRanks, AddsInTheOrderOfTheRanksAndNoOther) {
  for (const int num_threads : {1, 3}) {
    ThreadPool pool(num_threads);
    testing::ExpectSumsInRankOrder([&](const SumRanksArgs& args) { SumRanks(args, pool); });
  }
}

TEST(SumRanks, MayOverwriteTheFirstPiece) {
  ThreadPool pool(2);
  testing::ExpectSumInItsFirstPiece([&](const SumRanksArgs& args) { SumRanks(args, pool); });
}

TEST(JoinColumns, PutsColumnsOfDifferentWidthsSideBySide) {
  ThreadPool pool(2);
  testing::ExpectJoinedColumns([&](const JoinColumnsArgs& args) { JoinColumns(args, pool); });
}

TEST(PrepareWeight, TakesTheRequestedInputsAndReleasesWholeRows) {
  const std::vector<uint16_t> values = DistinctElements(40 * 70);
  const std::vector<ConstTensorView> parts = {{values.data(), DType::kBF16, Shape(15, 70)},
                                              {values.data() + 15 * 70, DType::kBF16, Shape(25, 70)}};
  ThreadPool pool(2);
  size_t num_released = 0;
  const auto weight = PrepareWeight({.parts = parts,
                                     .inputs = IndexRange{.begin = 19, .end = 56},
                                     .release = [&](const void*, size_t num_bytes) { num_released += num_bytes; }},
                                    pool);
  EXPECT_EQ(weight->out_features(), 40);
  EXPECT_EQ(weight->in_features(), 37);
  EXPECT_EQ(num_released, values.size() * sizeof(uint16_t));
  for (int64_t output = 0; output < 48; ++output) {
    for (int64_t input = 0; input < 64; ++input) {
      const uint16_t expected = output < 40 && input < 37 ? values[output * 70 + 19 + input] : 0;
      ASSERT_EQ(weight->bf16_panel(output / 16)[(input / 2 * 16 + output % 16) * 2 + input % 2], expected);
    }
  }
}

TEST(Embed, OfAPartOfTheVocabularyGivesZerosForOtherIds) {
  const std::vector<uint16_t> values = DistinctElements(40 * 70);
  const std::vector<ConstTensorView> parts = {{values.data(), DType::kBF16, Shape(40, 70)}};
  ThreadPool pool(2);
  const auto weight = PrepareWeight({.parts = parts}, pool);
  testing::ExpectZerosOfIdsThatAreNotHeld(values, 70, [&](EmbedArgs args) {
    args.weight = weight.get();
    Embed(args, pool);
  });
}

}  // namespace
}  // namespace foretoken::kernels::cpu
