// SPDX-License-Identifier: Apache-2.0
// Panels of integers and rows of int8, by AVX-VNNI's dots of bytes: for processors that have VNNI without AVX-512, as
// Intel's for desktops have since 2021. Tests also run it on an emulation of the dot.
#pragma once

#include "kernels/cpu/matmul/integer_panels.h"
#include "kernels/cpu/matmul/matmul_kernel.h"

namespace foretoken::kernels::cpu {

const MatMulKernel& AvxVnniIntegerKernel(const IntegerPanels& panels);

}  // namespace foretoken::kernels::cpu
