// SPDX-License-Identifier: Apache-2.0
// The product for many rows: see matmul.h. A block computes all splits of its tile, one after another.
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

inline constexpr int kTiledRows = 128;

void MatMulTiled(const MatMulArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
