// SPDX-License-Identifier: Apache-2.0
// Panels of integers by Highway, for every instruction set: codes widened to f32 in registers, and plain f32
// multiply-adds. Sums over int8 rows are exact in f32, because a group's products sum up to less than 2^24.
#pragma once

#include "kernels/cpu/matmul/matmul_kernel.h"

namespace foretoken::kernels::cpu {

// For panels of quads.
const MatMulKernel& HighwayIntegerKernel(const IntegerPanels& panels);

}  // namespace foretoken::kernels::cpu
