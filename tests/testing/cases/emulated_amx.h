// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/matmul/matmul_kernel.h"

namespace foretoken::testing {

// Multiplies a tile as AMX's kernel for integers and rows of int8 does, on emulated tile registers.
void MultiplyOnEmulatedAmx(const kernels::cpu::MatMulTile& tile);

}  // namespace foretoken::testing
