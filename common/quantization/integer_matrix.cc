// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/integer_matrix.h"

#include <algorithm>
#include <vector>

#include "kernels/check.h"

namespace foretoken::quantization {

void IntegerMatrix::ReadValues(int64_t first_row, int64_t num_rows, float* values) const {
  const int64_t num_inputs = shape()[1], num_groups = layout_.groups.num_groups();
  std::vector<uint8_t> codes(num_rows * num_inputs);
  std::vector<float> scales(num_rows * num_groups);
  std::vector<int32_t> zeros(num_rows * num_groups, center());
  const Rows rows = {.first = first_row, .count = num_rows};
  ReadCodes(rows, codes.data());
  ReadScales(rows, scales.data());
  if (layout_.has_zeros) ReadZeros(rows, zeros.data());
  for (int64_t row = 0; row < num_rows; ++row) {
    const uint8_t* row_codes = codes.data() + row * num_inputs;
    const float* row_scales = scales.data() + row * num_groups;
    const int32_t* row_zeros = zeros.data() + row * num_groups;
    float* out = values + row * num_inputs;
    if (!layout_.groups.is_consecutive()) {
      for (int64_t i = 0; i < num_inputs; ++i) {
        const int64_t group = layout_.groups.group_of(i);
        out[i] = row_scales[group] * static_cast<float>(row_codes[i] - row_zeros[group]);
      }
      continue;
    }
    for (int64_t group = 0, i = 0; group < num_groups; ++group) {
      const int64_t end = std::min(num_inputs, i + layout_.groups.group_size());
      for (; i < end; ++i) out[i] = row_scales[group] * static_cast<float>(row_codes[i] - row_zeros[group]);
    }
  }
}

void IntegerMatrix::ForgetCentralZeros() {
  std::vector<int32_t> zeros(layout_.groups.num_groups());
  for (int64_t row = 0; layout_.has_zeros && row < shape()[0]; ++row) {
    ReadZeros({.first = row, .count = 1}, zeros.data());
    if (std::ranges::count(zeros, center()) != static_cast<int64_t>(zeros.size())) return;
  }
  layout_.has_zeros = false;
}

std::optional<kernels::IntegerGroups> IntegerMatrix::groups() const {
  if ((layout_.bits != 4 && layout_.bits != 8) || !layout_.groups.are_all_equal()) return std::nullopt;
  return kernels::IntegerGroups{.bits = layout_.bits,
                                .group_size = layout_.groups.group_size(),
                                .has_offsets = layout_.has_zeros,
                                .scale_dtype = layout_.scale_dtype,
                                .is_reordered = !layout_.groups.is_consecutive()};
}

void IntegerMatrix::ReadGroups(int64_t first_row, int64_t num_rows, uint8_t* codes, float* scales,
                               float* offsets) const {
  FT_CHECK(groups().has_value());
  const Rows rows = {.first = first_row, .count = num_rows};
  ReadCodes(rows, codes);
  if (const std::span<const int32_t> order = input_order(); !order.empty()) {
    std::vector<uint8_t> as_stored(order.size());
    for (int64_t row = 0; row < num_rows; ++row, codes += order.size()) {
      std::copy_n(codes, order.size(), as_stored.begin());
      for (size_t i = 0; i < order.size(); ++i) codes[i] = as_stored[static_cast<size_t>(order[i])];
    }
  }
  ReadScales(rows, scales);
  if (!layout_.has_zeros) return;
  std::vector<int32_t> zeros(num_rows * layout_.groups.num_groups());
  ReadZeros(rows, zeros.data());
  for (size_t i = 0; i < zeros.size(); ++i) offsets[i] = scales[i] * static_cast<float>(center() - zeros[i]);
}

}  // namespace foretoken::quantization
