// SPDX-License-Identifier: Apache-2.0
// The numeric class of a matrix product: the order of additions in each output element's sum. A table gives it by the
// weight's shape, the same for every GPU that we serve. Nothing else changes it: no row count, no timing, no choice of
// a kernel (E1).
//
// The inputs, padded with zeros to whole slices of 64, are cut into splits of slices. Within a split one accumulator
// adds steps of 16 inputs, one after another, from zero (mma.cuh). The splits' sums are added in f32, in order:
//   sum = (split 0 + split 1) + split 2 ...
// With an FP8 weight this is a sum of codes. It is multiplied first by the row's scale and then by the output's, so
// that neither scale is lost if the other is extreme. Then the bias is added, and then the present value of the output.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"

namespace foretoken::kernels::cuda {

inline constexpr int kSliceInputs = 64;

struct NumericClass {
  int32_t num_slices = 0;
  int32_t num_splits = 0;

  // The first slice of a split; split_begin(num_splits) is the number of slices.
  FT_HOST_DEVICE int32_t split_begin(int32_t split) const {
    return static_cast<int32_t>(int64_t{num_slices} * split / num_splits);
  }
  friend bool operator==(const NumericClass&, const NumericClass&) = default;
};

NumericClass NumericClassOf(int64_t out_features, int64_t in_features);

}  // namespace foretoken::kernels::cuda
