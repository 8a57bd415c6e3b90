// SPDX-License-Identifier: Apache-2.0
// Passes over one row of logits that drawing, filtering and scoring share. The calling thread does the work.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace foretoken::kernels::cpu {

inline constexpr float kImpossible = -std::numeric_limits<float>::infinity();

// Rows are read in blocks of this many entries. A vector's length divides it.
inline constexpr size_t kLogitsBlock = 1024;

// Entries [begin, begin + kLogitsBlock) of the row: in place, or, if the row ends before, in `buffer`, padded with
// kImpossible.
inline const float* BlockOf(std::span<const float> row, size_t begin, float* buffer) {
  if (begin + kLogitsBlock <= row.size()) return row.data() + begin;
  std::fill(std::copy(row.begin() + begin, row.end(), buffer), buffer + kLogitsBlock, kImpossible);
  return buffer;
}

struct RowMax {
  float max = kImpossible;
  int32_t id = 0;         // the lowest id with this value
  bool is_finite = true;  // false: the row has a NaN or +inf, and max and id mean nothing. -inf is allowed
};

RowMax FindMax(std::span<const float> row);

// Sum of exp((x - max) * inverse_temperature).
double SumOfExps(std::span<const float> row, float max, float inverse_temperature);

}  // namespace foretoken::kernels::cpu
