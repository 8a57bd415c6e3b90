// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/cases/rank_cases.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::OutputMode;
using kernels::Shape;
using kernels::TensorView;

constexpr int64_t kRanks = 4;

// Sums the ranks' values in this order.
std::vector<float> ScalarSums(const std::vector<float>& pieces, const std::vector<int64_t>& order) {
  const auto num_elements = static_cast<int64_t>(pieces.size()) / kRanks;
  std::vector<float> sums(num_elements);
  for (int64_t i = 0; i < num_elements; ++i) {
    sums[i] = pieces[order[0] * num_elements + i];
    for (size_t n = 1; n < order.size(); ++n) sums[i] += pieces[order[n] * num_elements + i];
  }
  return sums;
}

}  // namespace

void ExpectSumsInRankOrder(const std::function<void(const kernels::SumRanksArgs&)>& sum_ranks) {
  for (const int64_t num_columns : {1, 7, 64, 333}) {
    for (const int64_t num_rows : {1, 2, 65}) {
      const std::vector<float> pieces = RandomValues(3).Normals(kRanks * num_rows * num_columns);
      std::vector<float> out = RandomValues(4).Normals(num_rows * num_columns);
      const std::vector<float> before = out;
      const TensorView view{out.data(), DType::kF32, Shape(num_rows, num_columns)};
      const ConstTensorView all{pieces.data(), DType::kF32, Shape(kRanks, num_rows, num_columns)};
      const std::vector<float> sums = ScalarSums(pieces, {0, 1, 2, 3});
      sum_ranks({.pieces = all, .mode = OutputMode::kAdd, .out = view});
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], before[i] + sums[i]) << i;
      sum_ranks({.pieces = all, .out = view});
      ASSERT_EQ(out, sums);
      sum_ranks({.pieces = all, .scale = 0.37f, .out = view});
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], sums[i] * 0.37f) << i;
      out = before;
      sum_ranks({.pieces = all, .scale = 0.37f, .mode = OutputMode::kAdd, .out = view});
      for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], before[i] + sums[i] * 0.37f, 1e-6) << i;
      out = sums;
      if (out.size() < 300) continue;  // too few elements to distinguish orders reliably
      ASSERT_NE(out, ScalarSums(pieces, {3, 2, 1, 0}));
      ASSERT_NE(out, ScalarSums(pieces, {0, 2, 1, 3}));
    }
  }
}

void ExpectSumInItsFirstPiece(const std::function<void(const kernels::SumRanksArgs&)>& sum_ranks) {
  constexpr int64_t kRows = 5, kColumns = 333;
  std::vector<float> pieces = RandomValues(5).Normals(kRanks * kRows * kColumns);
  const std::vector<float> sums = ScalarSums(pieces, {0, 1, 2, 3});
  sum_ranks({.pieces = {pieces.data(), DType::kF32, Shape(kRanks, kRows, kColumns)},
             .out = {pieces.data(), DType::kF32, Shape(kRows, kColumns)}});
  for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(pieces[i], sums[i]) << i;
}

void ExpectJoinedColumns(const std::function<void(const kernels::JoinColumnsArgs&)>& join_columns) {
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
  join_columns({.pieces = pieces.data(),
                .piece_elements = kPieceElements,
                .widths = widths,
                .out = {out.data(), DType::kF32, Shape(kRows, 10)}});
  EXPECT_EQ(out, expected);
}

std::vector<uint16_t> DistinctElements(size_t count) {
  std::vector<uint16_t> values(count);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(0x3f80 + i);
  return values;
}

void ExpectZerosOfIdsThatAreNotHeld(const std::vector<uint16_t>& elements, int64_t num_columns,
                                    const std::function<void(const kernels::EmbedArgs&)>& embed) {
  constexpr int64_t kFirstId = 100;
  const int64_t num_held = static_cast<int64_t>(elements.size()) / num_columns;
  const std::vector<int32_t> token_ids = {99, 100, static_cast<int32_t>(kFirstId + num_held - 1),
                                          static_cast<int32_t>(kFirstId + num_held), 0};
  std::vector<float> out(token_ids.size() * num_columns, 9);
  embed({.token_ids = token_ids.data(),
         .first_token_id = kFirstId,
         .out = {out.data(), DType::kF32, Shape(static_cast<int64_t>(token_ids.size()), num_columns)}});
  for (size_t row = 0; row < token_ids.size(); ++row) {
    const int64_t held = token_ids[row] - kFirstId;
    for (int64_t i = 0; i < num_columns; ++i) {
      const bool is_held = held >= 0 && held < num_held;
      const float expected = is_held ? kernels::FloatFromBf16(elements[held * num_columns + i]) : 0;
      ASSERT_EQ(out[row * num_columns + i], expected) << token_ids[row];
    }
  }
}

}  // namespace foretoken::testing
