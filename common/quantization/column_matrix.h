// SPDX-License-Identifier: Apache-2.0
// What GPTQ and AWQ have in common: scales [groups, N], so that an output is a column, and zero points packed along the
// outputs.
#pragma once

#include <cstdint>
#include <utility>

#include "common/quantization/integer_matrix.h"
#include "common/quantization/scales.h"

namespace foretoken::quantization {

class ColumnMatrix : public IntegerMatrix {
 public:
  struct Tensors {
    const weights::StoredTensor* codes = nullptr;
    const weights::StoredTensor* zeros = nullptr;
    const weights::StoredTensor* scales = nullptr;
  };

 protected:
  ColumnMatrix(const kernels::Shape& shape, IntegerLayout layout, const Tensors& tensors)
      : IntegerMatrix(shape, std::move(layout)), tensors_(tensors) {}

  const Tensors& tensors() const { return tensors_; }

  void ReadScales(const Rows& rows, float* scales) const final {
    const int64_t num_groups = layout().groups.num_groups(), num_outputs = shape()[0];
    const ScaleReader reader(*tensors_.scales);
    for (int64_t group = 0; group < num_groups; ++group) {
      for (int64_t row = 0; row < rows.count; ++row) {
        scales[row * num_groups + group] = reader[group * num_outputs + rows.first + row];
      }
    }
  }

 private:
  Tensors tensors_;
};

}  // namespace foretoken::quantization
