// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/cases/copy_cases.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <vector>

#include "tests/reference/ops.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {
namespace {

using kernels::Bf16FromFloat;
using kernels::DType;
using kernels::FloatFromBf16;
using kernels::Shape;

constexpr int64_t kInRows = 5, kOutRows = 7;

// Values in the memory of one dtype.
class Matrix {
 public:
  Matrix(DType dtype, std::vector<float> values) : dtype_(dtype), floats_(std::move(values)) {
    for (const float value : floats_) halves_.push_back(Bf16FromFloat(value));
  }
  void* data() { return dtype_ == DType::kF32 ? static_cast<void*>(floats_.data()) : halves_.data(); }
  float at(size_t i) const { return dtype_ == DType::kF32 ? floats_[i] : FloatFromBf16(halves_[i]); }

 private:
  DType dtype_;
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
};

struct Lists {
  std::vector<int32_t> from, to;  // empty: null
  int32_t num_rows = 0;

  // The row of x that row `row` of the output gets.
  std::optional<int64_t> Source(int64_t row) const {
    for (int32_t i = 0; i < num_rows; ++i) {
      if ((to.empty() ? i : to[i]) == row) return from.empty() ? i : from[i];
    }
    return std::nullopt;
  }
};

void ExpectCopied(DType from_dtype, DType to_dtype, int64_t num_columns, const Lists& lists,
                  const std::function<void(const kernels::CopyRowsArgs&)>& copy_rows) {
  constexpr int64_t kFirstColumn = 3;
  const int64_t width = num_columns + 5;
  Matrix x(from_dtype, RandomValues(1).Normals(kInRows * num_columns));
  Matrix out(to_dtype, RandomValues(2).Normals(kOutRows * width));
  const Matrix before = out;
  copy_rows({.x = {x.data(), from_dtype, Shape(kInRows, num_columns)},
             .from = lists.from.empty() ? nullptr : lists.from.data(),
             .to = lists.to.empty() ? nullptr : lists.to.data(),
             .num_rows = lists.num_rows,
             .out = {out.data(), to_dtype, Shape(kOutRows, width)},
             .first_column = kFirstColumn});
  for (int64_t row = 0; row < kOutRows; ++row) {
    for (int64_t c = 0; c < width; ++c) {
      const std::optional<int64_t> source = lists.Source(row);
      float expected = before.at(row * width + c);
      if (source.has_value() && c >= kFirstColumn && c < kFirstColumn + num_columns) {
        expected = x.at(*source * num_columns + c - kFirstColumn);
        if (to_dtype == DType::kBF16) expected = FloatFromBf16(Bf16FromFloat(expected));
      }
      ASSERT_EQ(out.at(row * width + c), expected) << "row " << row << ", column " << c;
    }
  }
}

}  // namespace

void ExpectCopiedRows(const std::function<void(const kernels::CopyRowsArgs&)>& copy_rows) {
  for (const DType from : {DType::kF32, DType::kBF16}) {
    for (const DType to : {DType::kF32, DType::kBF16}) {
      for (const int64_t num_columns : {1, 31, 600}) {
        ExpectCopied(from, to, num_columns, {.num_rows = 5}, copy_rows);
        ExpectCopied(from, to, num_columns, {.from = {4, 0, 4}, .num_rows = 3}, copy_rows);
        ExpectCopied(from, to, num_columns, {.to = {6, 2}, .num_rows = 2}, copy_rows);
        ExpectCopied(from, to, num_columns, {.from = {3, 3, 1}, .to = {0, 6, 4}, .num_rows = 3}, copy_rows);
        ExpectCopied(from, to, num_columns, {.num_rows = 0}, copy_rows);
      }
    }
  }
}

void ExpectSpreadLogits(const std::function<void(const kernels::SpreadLogitsArgs&)>& spread_logits) {
  constexpr int64_t kRows = 3, kIds = 700;
  std::vector<int32_t> token_ids;
  for (int32_t id = 1; id < kIds; id += 1 + id % 3) token_ids.push_back(id);
  const auto num_known = static_cast<int64_t>(token_ids.size());
  const std::vector<float> logits = RandomValues(6).Normals(kRows * num_known);
  std::vector<float> out(kRows * kIds, 5);
  std::vector<float> expected(out.size(), -std::numeric_limits<float>::infinity());
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < num_known; ++i) expected[row * kIds + token_ids[i]] = logits[row * num_known + i];
  }
  spread_logits({.logits = {logits.data(), DType::kF32, Shape(kRows, num_known)},
                 .token_ids = token_ids.data(),
                 .out = {out.data(), DType::kF32, Shape(kRows, kIds)}});
  EXPECT_EQ(out, expected);
}

void ExpectCappedLogits(const std::function<void(const kernels::CapLogitsArgs&)>& cap_logits) {
  constexpr int64_t kRows = 3, kIds = 333;
  std::vector<float> before = RandomValues(8).Normals(kRows * kIds, 20);
  before[0] = 0;
  before[1] = 1e30f;
  before[2] = -1e30f;
  for (const std::optional<float> cap : {std::optional<float>(), std::optional(30.0f), std::optional(0.5f)}) {
    for (const float scale : {1.0f, 0.25f}) {
      std::vector<float> logits = before;
      cap_logits({.logits = {logits.data(), DType::kF32, Shape(kRows, kIds)}, .scale = scale, .cap = cap});
      for (size_t i = 0; i < logits.size(); ++i) {
        const double expected = reference::Capped(double{before[i]} * scale, cap);
        // Two products and a hyperbolic tangent of 4 ulp.
        ASSERT_NEAR(logits[i], expected, 8 * 0x1p-24 * std::abs(expected)) << before[i];
      }
    }
  }
}

}  // namespace foretoken::testing
