// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/weight_layout.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Puts dense rows, bf16 in device memory, in their place as the weight's `outputs`. In e4m3 an output's scale is the
// largest magnitude of its row over 448, and its codes are element / scale, rounded to nearest, ties to even. A row of
// zeros has scale 0, one with a NaN or an infinity a scale that is none of the finite.
void PackRows(const uint16_t* rows, IndexRange outputs, const PackedWeight& weight, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
