// SPDX-License-Identifier: Apache-2.0
// The ops of tensor-parallel ranks: bit for bit what plain loops do, in the order of the ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/random_values.h"

namespace foretoken::kernels::cuda {
namespace {

using testing::RandomValues;

using SumRanksTest = OnDevice;
using JoinColumnsTest = OnDevice;
using ShardedWeightTest = OnDevice;
using ShardedEmbedTest = OnDevice;

constexpr int64_t kRanks = 4;

// Adds the ranks' values in this order.
std::vector<float> ScalarSums(const std::vector<float>& pieces, const std::vector<int64_t>& order) {
  const auto num_elements = static_cast<int64_t>(pieces.size()) / kRanks;
  std::vector<float> sums(num_elements);
  for (int64_t i = 0; i < num_elements; ++i) {
    sums[i] = pieces[order[0] * num_elements + i];
    for (size_t n = 1; n < order.size(); ++n) sums[i] += pieces[order[n] * num_elements + i];
  }
  return sums;
}

TEST_F(SumRanksTest, AddsInTheOrderOfTheRanksAndNoOther) {
  for (const int64_t num_columns : {1, 7, 64, 333}) {
    for (const int64_t num_rows : {1, 2, 65}) {
      const std::vector<float> pieces = RandomValues(3).Normals(kRanks * num_rows * num_columns);
      std::vector<float> out = RandomValues(4).Normals(num_rows * num_columns);
      const std::vector<float> before = out;
      const TensorView view{out.data(), DType::kF32, Shape(num_rows, num_columns)};
      const ConstTensorView all{pieces.data(), DType::kF32, Shape(kRanks, num_rows, num_columns)};
      const std::vector<float> sums = ScalarSums(pieces, {0, 1, 2, 3});
      RunSumRanks({.pieces = all, .mode = OutputMode::kAdd, .out = view});
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], before[i] + sums[i]) << i;
      RunSumRanks({.pieces = all, .out = view});
      ASSERT_EQ(out, sums);
      if (out.size() < 300) continue;
      ASSERT_NE(out, ScalarSums(pieces, {3, 2, 1, 0}));
      ASSERT_NE(out, ScalarSums(pieces, {0, 2, 1, 3}));
    }
  }
}

TEST_F(JoinColumnsTest, PutsColumnsOfDifferentWidthsSideBySide) {
  const std::vector<int64_t> widths = {3, 4, 3};
  constexpr int64_t kRows = 6, kPieceElements = kRows * 4 + 5;
  std::vector<float> pieces(3 * kPieceElements, -1), out(kRows * 10), expected(kRows * 10);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<float>(i);
  int64_t first_column = 0;
  for (size_t rank = 0; rank < widths.size(); first_column += widths[rank++]) {
    for (int64_t row = 0; row < kRows; ++row) {
      std::copy_n(expected.begin() + row * 10 + first_column, widths[rank],
                  pieces.begin() + static_cast<int64_t>(rank) * kPieceElements + row * widths[rank]);
    }
  }
  RunJoinColumns({.pieces = pieces.data(),
                  .piece_elements = kPieceElements,
                  .widths = widths,
                  .out = {out.data(), DType::kF32, Shape(kRows, 10)}});
  EXPECT_EQ(out, expected);
}

// A matrix of 40 rows of 70 whose elements are all different.
std::vector<uint16_t> DistinctElements() {
  std::vector<uint16_t> values(40 * 70);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(0x3f80 + i);
  return values;
}

// Embedding its rows shows a weight in whatever layout.
TEST_F(ShardedWeightTest, HasThoseInputsThatAreAskedFor) {
  const std::vector<uint16_t> bf16 = DistinctElements();
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

TEST_F(ShardedEmbedTest, GivesZerosForIdsThatItDoesNotHold) {
  const std::vector<uint16_t> values = DistinctElements();
  const auto weight = Prepare({values.data(), DType::kBF16, Shape(40, 70)});
  const std::vector<int32_t> token_ids = {99, 100, 139, 140, 0};
  std::vector<float> out(token_ids.size() * 70, 9);
  RunEmbed({.weight = weight.get(),
            .token_ids = token_ids.data(),
            .first_token_id = 100,
            .out = {out.data(), DType::kF32, Shape(static_cast<int64_t>(token_ids.size()), 70)}});
  for (size_t row = 0; row < token_ids.size(); ++row) {
    for (int64_t i = 0; i < 70; ++i) {
      const int64_t held = token_ids[row] - 100;
      const float expected = held >= 0 && held < 40 ? FloatFromBf16(values[held * 70 + i]) : 0;
      ASSERT_EQ(out[row * 70 + i], expected) << token_ids[row];
    }
  }
}

}  // namespace
}  // namespace foretoken::kernels::cuda
