// SPDX-License-Identifier: Apache-2.0
// The product for few rows: see matmul.h. Each block computes one split. For each tile of the weight, the block that
// arrives last adds the splits in order.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/matmul/matrix_unit.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

inline constexpr int kSkinnyRows = 64;  // more rows are computed this many at a time, and each pass reads the weight

// If the weight has more than one split, its tiles, (N / 128) (T / 64), both rounded up, must be at most kMaxArrivals.
// An e4m3 weight, and at most 32 rows, are multiplied by warps, whatever the unit.
void MatMulSkinny(const MatMulArgs& args, MatrixUnit unit, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
