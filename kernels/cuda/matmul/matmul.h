// SPDX-License-Identifier: Apache-2.0
// out = x weight^T: see MatMulArgs. The order of every sum is the weight's numeric class (numeric_class.h), for every
// row count. Which kernel computes it follows from the weight's outputs and the row count, and moves no bit.
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

void MatMul(const MatMulArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
