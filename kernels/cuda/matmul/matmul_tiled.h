// SPDX-License-Identifier: Apache-2.0
// The product for many rows: see matmul.h. A block computes all splits of its tile, one after another.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/matmul/matrix_unit.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

inline constexpr int kTiledRows = 128;

// With fewer tiles, part of a GPU's multiprocessors would be idle. Then splits are spread over them.
inline constexpr int64_t kMinTiles = 128;

// An e4m3 weight is multiplied by warps, whatever the unit.
void MatMulTiled(const MatMulArgs& args, MatrixUnit unit, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
