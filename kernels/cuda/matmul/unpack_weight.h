// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/matmul/weight_layout.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Writes some of a bf16 weight's outputs, from the first of a panel on, as dense rows of its inputs, which are whole
// slices. `rows` begins at a multiple of 16 bytes.
void UnpackRows(const PackedWeight& weight, IndexRange outputs, uint16_t* rows, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
