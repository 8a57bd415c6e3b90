// SPDX-License-Identifier: Apache-2.0
// Plain f32 multiply-adds by Highway, with bf16 widened in registers: for AVX-512, AVX2 and every other instruction
// set.
#pragma once

#include "kernels/cpu/matmul/matmul_kernel.h"

namespace foretoken::kernels::cpu {

const MatMulKernel& HighwayKernel();

}  // namespace foretoken::kernels::cpu
