// SPDX-License-Identifier: Apache-2.0
// out = x weight^T: see MatMulArgs. Every output element is one chain of fused multiply-adds over the inputs, in order,
// for every weight shape and row count: the numeric class of the CPU backend's f32 kernels.
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

void MatMul(const MatMulArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
