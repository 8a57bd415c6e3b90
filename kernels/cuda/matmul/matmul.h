// SPDX-License-Identifier: Apache-2.0
// out = x weight^T: see MatMulArgs. The weight's numeric class (numeric_class.h) fixes the order of every sum, for
// every row count. The weight's outputs and the row count decide the kernel, and this choice moves no bit.
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

void MatMul(const MatMulArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
