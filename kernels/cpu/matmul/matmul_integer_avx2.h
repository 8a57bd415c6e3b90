// SPDX-License-Identifier: Apache-2.0
// Panels of integers and rows of int8, by AVX2's products of bytes: for processors without VNNI.
#pragma once

#include "kernels/cpu/matmul/integer_panels.h"
#include "kernels/cpu/matmul/matmul_kernel.h"

namespace foretoken::kernels::cpu {

const MatMulKernel& Avx2IntegerKernel(const IntegerPanels& panels);

}  // namespace foretoken::kernels::cpu
