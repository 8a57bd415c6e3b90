// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/matmul/weight_layout.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Writes a range of a bf16 weight's outputs as dense rows of its inputs. The range begins with a panel, and the inputs
// are whole slices. `rows` begins at a multiple of 16 bytes.
void UnpackRows(const PackedWeight& weight, IndexRange outputs, uint16_t* rows, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
