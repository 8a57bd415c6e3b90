// SPDX-License-Identifier: Apache-2.0
// A matrix whose file does not hold plain floats: integers with scales, 8-bit floats and the like. The reader of a
// format makes one; a backend packs it. A backend that has a layout for the matrix's integers keeps them, and any other
// keeps the values that they stand for, as bf16.
// Threads: any, several at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/tensor_view.h"

namespace foretoken::kernels {

// Consecutive groups of a row whose scales and offsets are products, in exact arithmetic:
//   scale = scale of the block * factor,   offset = zero * scale - minimum of the block * factor.
struct ScaleBlocks {
  int64_t num_groups = 0;  // of a block; divides the number of groups
  int zero = 0;            // the integer, in the file, that the code `center` stands for

  friend bool operator==(const ScaleBlocks&, const ScaleBlocks&) = default;
};

// Groups of consecutive inputs of a row share a scale. For a code c of a group, with center = 2^(bits - 1),
//   value = scale * (c - center) + offset.
struct IntegerGroups {
  int bits = 0;            // 4, 6 or 8: codes are in [0, 2^bits)
  int64_t group_size = 0;  // inputs; divides the number of inputs
  bool has_offsets = false;
  // The type that holds every scale exactly: F32, F16 or BF16.
  DType scale_dtype = DType::kF32;
  bool is_reordered = false;          // inputs are consecutive in the order of StoredMatrix::input_order
  std::optional<ScaleBlocks> blocks;  // set: scales and offsets are products (ReadFactors)
  // Of 6 bits: c - center is always twice a value of E2M1, so 4 bits can hold a code.
  bool is_e2m1 = false;

  friend bool operator==(const IntegerGroups&, const IntegerGroups&) = default;
};

// The products' parts, of some rows.
struct ScaleFactors {
  std::vector<uint16_t> scales, minimums;              // [rows, blocks] F16
  std::vector<int8_t> scale_factors, minimum_factors;  // [rows, groups]
};

class StoredMatrix {
 public:
  virtual ~StoredMatrix() = default;
  Shape shape() const { return shape_; }  // [N, K]

  // Writes the values of rows [first_row, first_row + num_rows) to values [num_rows, K].
  virtual void ReadValues(int64_t first_row, int64_t num_rows, float* values) const = 0;

  // Unset: the matrix is not groups of integers of one size, and ReadGroups may not be called.
  virtual std::optional<IntegerGroups> groups() const { return std::nullopt; }
  // [K] the inputs in the order in which ReadGroups writes their codes, if that is another than theirs; otherwise
  // empty.
  virtual std::span<const int32_t> input_order() const { return {}; }
  // Writes codes [num_rows, K], and scales and offsets [num_rows, K / group_size]; offsets only if there are any.
  virtual void ReadGroups(int64_t /*first_row*/, int64_t /*num_rows*/, uint8_t* /*codes*/, float* /*scales*/,
                          float* /*offsets*/) const {}
  // The same scales and offsets, if the groups have blocks. Appends to the vectors.
  virtual void ReadFactors(int64_t /*first_row*/, int64_t /*num_rows*/, ScaleFactors& /*factors*/) const {}

 protected:
  explicit StoredMatrix(Shape shape) : shape_(shape) {}

 private:
  Shape shape_;
};

// [begin, end)
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

// Some rows of a stored matrix.
struct StoredPart {
  const StoredMatrix* matrix = nullptr;
  IndexRange rows;
};

// The groups that hold the integers of all parts: the most bits, the largest size that divides the size of each, and
// what any of them needs besides. Blocks only if all parts have the same groups. Unset: a part has no groups, or they
// have different orders of inputs.
std::optional<IntegerGroups> CommonGroups(std::span<const StoredPart> parts);

// Integers of some rows on their way into a backend's layout. The last group may end behind the inputs.
struct GroupedRows {
  GroupedRows(int64_t num_rows, int64_t inputs, const IntegerGroups& groups);

  int64_t num_row_blocks() const { return (num_groups + blocks->num_groups - 1) / blocks->num_groups; }  // with blocks

  int bits;
  int64_t num_inputs;
  int64_t group_size;
  int64_t num_groups;
  std::vector<uint8_t> codes;  // [rows, inputs]; at first 2^(bits - 1), whose value is 0
  std::vector<float> scales;   // [rows, groups]
  std::vector<float> offsets;  // as scales, or empty
  std::optional<ScaleBlocks> blocks;
  ScaleFactors factors;  // with blocks, in place of scales and offsets
};

// Copies some inputs of some rows of the part to rows `to_row` and following. The rows' groups hold the part's.
void CopyIntegers(const StoredPart& part, const IndexRange& rows, const IndexRange& inputs, int64_t to_row,
                  GroupedRows& to);

}  // namespace foretoken::kernels
