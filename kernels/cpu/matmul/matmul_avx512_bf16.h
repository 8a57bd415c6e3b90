// SPDX-License-Identifier: Apache-2.0
// AVX-512-BF16: vdpbf16ps, 16 outputs x 2 inputs of one row per instruction.
#pragma once

#include "kernels/cpu/matmul/matmul_kernel.h"

namespace foretoken::kernels::cpu {

const MatMulKernel& Avx512Bf16Kernel();

}  // namespace foretoken::kernels::cpu
