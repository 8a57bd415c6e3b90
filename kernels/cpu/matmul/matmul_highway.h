// SPDX-License-Identifier: Apache-2.0
// Plain f32 multiply-adds by Highway, with bf16 widened in registers: AVX-512, AVX2 and whatever else there is.
#pragma once

#include "kernels/cpu/matmul/matmul_kernel.h"

namespace foretoken::kernels::cpu {

const MatMulKernel& HighwayKernel();

}  // namespace foretoken::kernels::cpu
