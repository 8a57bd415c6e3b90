// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/matmul/matmul_kernel.h"

namespace foretoken::kernels::cpu {

// For rows of int8, panels of every layout, Isa::kAmx. A row's sums are the AVX-512 kernel's, bit for bit, and few rows
// take that kernel. No processor with AMX has run it: docs/benchmarks.md.
const MatMulKernel& AmxIntegerKernel();

}  // namespace foretoken::kernels::cpu
