// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// See RmsNormArgs. The sum of squares: one chain per thread over every 256th column, then BlockSum.
void RmsNorm(const RmsNormArgs& args, cudaStream_t stream);
void MeanSquares(const MeanSquaresArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
