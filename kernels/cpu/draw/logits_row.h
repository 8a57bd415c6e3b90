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

// Rows are read in blocks of this many entries; a vector divides it.
inline constexpr size_t kLogitsBlock = 1024;

// Entries [begin, begin + kLogitsBlock) of the row: in place, or, where the row ends before, in `buffer`, filled up
// with kImpossible.
inline const float* BlockOf(std::span<const float> row, size_t begin, float* buffer) {
  if (begin + kLogitsBlock <= row.size()) return row.data() + begin;
  std::fill(std::copy(row.begin() + begin, row.end(), buffer), buffer + kLogitsBlock, kImpossible);
  return buffer;
}

struct RowMax {
  float max = kImpossible;
  int32_t id = 0;         // the lowest that has it
  bool is_finite = true;  // neither NaN nor +inf; -inf only says impossible. If not, max and id mean nothing
};

RowMax FindMax(std::span<const float> row);

// Sum of exp((x - max) * inverse_temperature).
double SumOfExps(std::span<const float> row, float max, float inverse_temperature);

}  // namespace foretoken::kernels::cpu
