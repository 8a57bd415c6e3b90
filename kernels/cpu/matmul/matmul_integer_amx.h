// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/matmul/integer_panels.h"
#include "kernels/cpu/matmul/matmul_kernel.h"

namespace foretoken::kernels::cpu {

// For rows of int8, panels of every layout, Isa::kAmx. A row's sums are the AVX-512 kernel's, bit for bit, and that
// kernel is taken for few rows and for short groups, where it is faster.
const MatMulKernel& AmxIntegerKernel(const IntegerPanels& panels);

}  // namespace foretoken::kernels::cpu
