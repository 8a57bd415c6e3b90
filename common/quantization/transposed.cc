// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/transposed.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/quantization/scales.h"

namespace foretoken::quantization {
namespace {

class TransposedMatrix : public kernels::StoredMatrix {
 public:
  TransposedMatrix(const kernels::Shape& shape, const weights::StoredTensor& tensor)
      : StoredMatrix(shape), elements_(tensor) {}

  void ReadValues(int64_t first_row, int64_t num_rows, float* values) const override {
    const int64_t num_outputs = shape()[0], num_inputs = shape()[1];
    for (int64_t row = 0; row < num_rows; ++row) {
      for (int64_t i = 0; i < num_inputs; ++i) *values++ = elements_[i * num_outputs + first_row + row];
    }
  }

 private:
  ScaleReader elements_;
};

}  // namespace

absl::StatusOr<FoundWeight> OpenTransposed(TensorSet tensors, const kernels::Shape& shape) {
  FT_ASSIGN_OR_RETURN(const weights::StoredTensor* weight,
                      tensors.Take("weight", {"F32", "F16", "BF16"}, {shape[1], shape[0]}));
  return FoundWeight{.stored = std::make_unique<TransposedMatrix>(shape, *weight),
                     .format = weight->dtype + " transposed",
                     .tensors = tensors.taken()};
}

}  // namespace foretoken::quantization
