// SPDX-License-Identifier: Apache-2.0
// Panels of integers, by AVX-512: rows of int8 by VNNI's dots of bytes, rows of bf16 by dots of pairs, for which the
// integers are widened in registers.
#pragma once

#include "kernels/cpu/matmul/integer_panels.h"
#include "kernels/cpu/matmul/matmul_kernel.h"

namespace foretoken::kernels::cpu {

// The order of codes that the kernel reads.
constexpr IntegerOrder Avx512OrderOf(bool int8_rows) { return int8_rows ? IntegerOrder::kQuads : IntegerOrder::kPairs; }

const MatMulKernel& Avx512IntegerKernel(const IntegerPanels& panels);

}  // namespace foretoken::kernels::cpu
