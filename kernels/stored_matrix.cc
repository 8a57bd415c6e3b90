// SPDX-License-Identifier: Apache-2.0
#include "kernels/stored_matrix.h"

#include <algorithm>
#include <numeric>

namespace foretoken::kernels {

std::optional<IntegerGroups> CommonGroups(std::span<const StoredPart> parts) {
  std::optional<IntegerGroups> common;
  for (const StoredPart& part : parts) {
    const std::optional<IntegerGroups> groups = part.matrix->groups();
    if (!groups || !std::ranges::equal(part.matrix->input_order(), parts[0].matrix->input_order())) return std::nullopt;
    if (!common) common = groups;
    if (*groups != *common) common->blocks.reset();
    common->bits = std::max(common->bits, groups->bits);
    common->group_size = std::gcd(common->group_size, groups->group_size);
    if (groups->scale_dtype != common->scale_dtype) common->scale_dtype = DType::kF32;
    common->has_offsets |= groups->has_offsets;
    common->is_e2m1 &= groups->is_e2m1;
  }
  return common;
}

GroupedRows::GroupedRows(int64_t num_rows, int64_t inputs, const IntegerGroups& groups)
    : bits(groups.bits),
      num_inputs(inputs),
      group_size(groups.group_size),
      num_groups((inputs + group_size - 1) / group_size),
      codes(num_rows * num_inputs, static_cast<uint8_t>(1 << (bits - 1))),
      blocks(groups.blocks) {
  if (!blocks) {
    scales.resize(num_rows * num_groups);
    if (groups.has_offsets) offsets.resize(num_rows * num_groups);
    return;
  }
  const int64_t num_blocks = num_rows * num_row_blocks();
  factors = {.scales = std::vector<uint16_t>(num_blocks),
             .minimums = std::vector<uint16_t>(num_blocks),
             .scale_factors = std::vector<int8_t>(num_rows * num_groups),
             .minimum_factors = std::vector<int8_t>(num_rows * num_groups)};
}

namespace {

// Rows of a stored table, `from` entries long, from entry `first` on.
template <typename T>
void CopyRows(const std::vector<T>& stored, int64_t from, int64_t first, int64_t to_row, int64_t count,
              std::vector<T>& to) {
  for (size_t row = 0; row < stored.size() / from; ++row) {
    std::copy_n(stored.begin() + row * from + first, count, to.begin() + (to_row + row) * count);
  }
}

void CopyFactors(const StoredPart& part, const IndexRange& rows, const IndexRange& inputs, int64_t to_row,
                 GroupedRows& to) {
  const int64_t stored_groups = part.matrix->shape()[1] / to.group_size, first = inputs.begin / to.group_size;
  const int64_t block_groups = to.blocks->num_groups;
  ScaleFactors stored;
  part.matrix->ReadFactors(part.rows.begin + rows.begin, rows.size(), stored);
  CopyRows(stored.scale_factors, stored_groups, first, to_row, to.num_groups, to.factors.scale_factors);
  CopyRows(stored.minimum_factors, stored_groups, first, to_row, to.num_groups, to.factors.minimum_factors);
  CopyRows(stored.scales, stored_groups / block_groups, first / block_groups, to_row, to.num_row_blocks(),
           to.factors.scales);
  CopyRows(stored.minimums, stored_groups / block_groups, first / block_groups, to_row, to.num_row_blocks(),
           to.factors.minimums);
}

}  // namespace

void CopyIntegers(const StoredPart& part, const IndexRange& rows, const IndexRange& inputs, int64_t to_row,
                  GroupedRows& to) {
  const IntegerGroups stored = part.matrix->groups().value();
  const int64_t stored_inputs = part.matrix->shape()[1], stored_groups = stored_inputs / stored.group_size;
  if (to.blocks) CopyFactors(part, rows, inputs, to_row, to);
  std::vector<uint8_t> codes(rows.size() * stored_inputs);
  std::vector<float> scales(rows.size() * stored_groups), offsets(scales.size());  // a part may have no offsets
  part.matrix->ReadGroups(part.rows.begin + rows.begin, rows.size(), codes.data(), scales.data(), offsets.data());
  const int widen = (1 << (to.bits - 1)) - (1 << (stored.bits - 1));  // of a code, whose value stays the same
  for (int64_t row = 0; row < rows.size(); ++row) {
    std::transform(codes.begin() + row * stored_inputs + inputs.begin, codes.begin() + row * stored_inputs + inputs.end,
                   to.codes.begin() + (to_row + row) * to.num_inputs,
                   [widen](uint8_t code) { return static_cast<uint8_t>(code + widen); });
    if (to.blocks) continue;
    for (int64_t group = 0; group < to.num_groups; ++group) {
      const int64_t from = row * stored_groups + (inputs.begin + group * to.group_size) / stored.group_size;
      to.scales[(to_row + row) * to.num_groups + group] = scales[from];
      if (!to.offsets.empty()) to.offsets[(to_row + row) * to.num_groups + group] = offsets[from];
    }
  }
}

}  // namespace foretoken::kernels
