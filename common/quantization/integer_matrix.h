// SPDX-License-Identifier: Apache-2.0
// A matrix of unsigned integer codes with a scale and a zero point per group of inputs:
//   value = scale * (code - zero).
// The product is rounded once, to f32. Formats differ in where these three numbers lie; a class for each says it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "common/quantization/input_groups.h"
#include "kernels/stored_matrix.h"

namespace foretoken::quantization {

struct IntegerLayout {
  int bits = 0;  // of a code
  InputGroups groups;
  bool has_zeros = false;  // not set: every zero point is 2^(bits - 1)
  kernels::DType scale_dtype = kernels::DType::kF32;
};

class IntegerMatrix : public kernels::StoredMatrix {
 public:
  void ReadValues(int64_t first_row, int64_t num_rows, float* values) const final;
  std::optional<kernels::IntegerGroups> groups() const final;
  std::span<const int32_t> input_order() const final { return layout_.groups.order(); }
  void ReadGroups(int64_t first_row, int64_t num_rows, uint8_t* codes, float* scales, float* offsets) const final;

  // Forgets zero points if all of them are 2^(bits - 1): symmetric files of some writers store them, too.
  void ForgetCentralZeros();

 protected:
  IntegerMatrix(kernels::Shape shape, IntegerLayout layout) : StoredMatrix(shape), layout_(std::move(layout)) {}

  const IntegerLayout& layout() const { return layout_; }
  int center() const { return 1 << (layout_.bits - 1); }

  struct Rows {
    int64_t first = 0;
    int64_t count = 0;
  };
  virtual void ReadCodes(const Rows& rows, uint8_t* codes) const = 0;  // [count, K]
  virtual void ReadScales(const Rows& rows, float* scales) const = 0;  // [count, groups]
  virtual void ReadZeros(const Rows& rows, int32_t* zeros) const = 0;  // [count, groups]; only if there are any

 private:
  IntegerLayout layout_;
};

}  // namespace foretoken::quantization
