// SPDX-License-Identifier: Apache-2.0
// AMX-BF16: tdpbf16ps, 16 rows x 16 outputs x 32 inputs per instruction.
#pragma once

#include "kernels/cpu/matmul/matmul_kernel.h"

namespace foretoken::kernels::cpu {

const MatMulKernel& AmxKernel();

}  // namespace foretoken::kernels::cpu
