// SPDX-License-Identifier: Apache-2.0
// The product for few rows: see matmul.h. Blocks compute one split each, and for each of the weight's tiles the block
// that comes last adds them in order.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

inline constexpr int kSkinnyRows = 64;  // more are computed as so many at a time, each reading the weight

// Its tiles, (N / 128) (T / 64), both rounded up, may be kMaxArrivals at most where the weight has more than one split.
void MatMulSkinny(const MatMulArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
