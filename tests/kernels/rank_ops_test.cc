// SPDX-License-Identifier: Apache-2.0
// The ops that put together what tensor-parallel ranks have computed: bit for bit what plain loops do.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/embed.h"
#include "kernels/cpu/join_columns.h"
#include "kernels/cpu/sum_ranks.h"
#include "kernels/cpu/weight.h"
#include "tests/testing/random_values.h"

namespace foretoken::kernels::cpu {
namespace {

using testing::RandomValues;

struct Pieces {
  int64_t num_ranks, num_rows, num_columns;
  std::vector<float> values;

  ConstTensorView view() const { return {values.data(), DType::kF32, Shape(num_ranks, num_rows, num_columns)}; }
  int64_t piece_size() const { return num_rows * num_columns; }
};

Pieces RandomPieces(int64_t num_ranks, int64_t num_rows, int64_t num_columns) {
  RandomValues random(3);
  return {num_ranks, num_rows, num_columns, random.Normals(num_ranks * num_rows * num_columns)};
}

// Adds the ranks' values in this order.
std::vector<float> ScalarSums(const Pieces& pieces, const std::vector<int64_t>& order) {
  std::vector<float> sums(pieces.piece_size());
  for (int64_t i = 0; i < pieces.piece_size(); ++i) {
    sums[i] = pieces.values[order[0] * pieces.piece_size() + i];
    for (size_t n = 1; n < order.size(); ++n) sums[i] += pieces.values[order[n] * pieces.piece_size() + i];
  }
  return sums;
}

std::vector<float> Sums(const Pieces& pieces, OutputMode mode, std::vector<float> out, int num_threads) {
  ThreadPool pool(num_threads);
  SumRanks({.pieces = pieces.view(),
            .mode = mode,
            .out = {out.data(), DType::kF32, Shape(pieces.num_rows, pieces.num_columns)}},
           pool);
  return out;
}

TEST(SumRanks, AddsInTheOrderOfTheRanksAndNoOther) {
  for (const int64_t num_columns : {1, 7, 64, 333}) {
    for (const int64_t num_rows : {1, 2, 65}) {
      const Pieces pieces = RandomPieces(4, num_rows, num_columns);
      const std::vector<float> expected = ScalarSums(pieces, {0, 1, 2, 3});
      for (const int num_threads : {1, 3}) {
        EXPECT_EQ(Sums(pieces, OutputMode::kStore, std::vector<float>(pieces.piece_size(), 9), num_threads), expected);
      }
    }
  }
  const Pieces pieces = RandomPieces(4, 5, 64);
  const std::vector<float> sums = Sums(pieces, OutputMode::kStore, std::vector<float>(pieces.piece_size()), 1);
  EXPECT_NE(sums, ScalarSums(pieces, {3, 2, 1, 0}));
  EXPECT_NE(sums, ScalarSums(pieces, {0, 2, 1, 3}));
}

TEST(SumRanks, AddsTheSumToWhatIsThere) {
  const Pieces pieces = RandomPieces(3, 9, 50);
  RandomValues random(4);
  const std::vector<float> before = random.Normals(pieces.piece_size());
  std::vector<float> expected = ScalarSums(pieces, {0, 1, 2});
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = before[i] + expected[i];
  EXPECT_EQ(Sums(pieces, OutputMode::kAdd, before, 2), expected);
}

TEST(JoinColumns, PutsColumnsOfDifferentWidthsSideBySide) {
  const std::vector<int64_t> widths = {3, 4, 3};
  constexpr int64_t kRows = 6, kPieceElements = kRows * 4 + 5;
  std::vector<float> pieces(3 * kPieceElements, -1), out(kRows * 10), expected(kRows * 10);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<float>(i);
  int64_t first_column = 0;
  for (size_t rank = 0; rank < widths.size(); first_column += widths[rank++]) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < widths[rank]; ++i) {
        pieces[rank * kPieceElements + row * widths[rank] + i] = expected[row * 10 + first_column + i];
      }
    }
  }
  ThreadPool pool(2);
  JoinColumns({.pieces = pieces.data(),
               .piece_elements = kPieceElements,
               .widths = widths,
               .out = {out.data(), DType::kF32, Shape(kRows, 10)}},
              pool);
  EXPECT_EQ(out, expected);
}

// A matrix of 40 rows of 70 whose elements are all different.
std::vector<uint16_t> DistinctElements() {
  std::vector<uint16_t> values(40 * 70);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(0x3f80 + i);
  return values;
}

TEST(PrepareWeight, TakesThoseInputsThatAreAskedForAndReleasesWholeRows) {
  const std::vector<uint16_t> values = DistinctElements();
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
      ASSERT_EQ(weight->panel(output / 16)[(input / 2 * 16 + output % 16) * 2 + input % 2], expected);
    }
  }
}

TEST(Embed, OfAPartOfTheVocabularyGivesZerosForOtherIds) {
  const std::vector<uint16_t> values = DistinctElements();
  const std::vector<ConstTensorView> parts = {{values.data(), DType::kBF16, Shape(40, 70)}};
  ThreadPool pool(2);
  const auto weight = PrepareWeight({.parts = parts}, pool);
  const std::vector<int32_t> token_ids = {99, 100, 139, 140, 0};
  std::vector<float> out(token_ids.size() * 70, 9);
  Embed({.weight = weight.get(),
         .token_ids = token_ids.data(),
         .first_token_id = 100,
         .out = {out.data(), DType::kF32, Shape(static_cast<int64_t>(token_ids.size()), 70)}},
        pool);
  for (size_t row = 0; row < token_ids.size(); ++row) {
    for (int64_t i = 0; i < 70; ++i) {
      const int64_t held = token_ids[row] - 100;
      const float expected = held >= 0 && held < 40 ? FloatFromBf16(values[held * 70 + i]) : 0;
      ASSERT_EQ(out[row * 70 + i], expected) << token_ids[row];
    }
  }
}

}  // namespace
}  // namespace foretoken::kernels::cpu
