// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/matmul/weight_layout.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Writes dense rows, bf16 in device memory, to their place as the weight's `outputs`. For e4m3 it quantises them
// (e4m3_row.cuh).
void PackRows(const uint16_t* rows, IndexRange outputs, const PackedWeight& weight, cudaStream_t stream);

// Dense rows of integers, in device memory.
struct IntegerRows {
  const uint8_t* codes = nullptr;  // [n, K]
  const float* scales = nullptr;   // [n, ceil(K / group size)]
  const float* offsets = nullptr;  // as scales, or null
};

// The same for integers, with their scales.
void PackIntegers(const IntegerRows& rows, IndexRange outputs, const PackedWeight& weight, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
