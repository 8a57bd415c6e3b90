// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul_amx.h"

#include "kernels/check.h"

#if defined(__x86_64__)
#include "kernels/cpu/matmul/matmul_amx_tile.h"

namespace foretoken::kernels::cpu {

const MatMulKernel& AmxKernel() { return AmxTile<TileRegisters>::kKernel; }

}  // namespace foretoken::kernels::cpu

#else

namespace foretoken::kernels::cpu {

const MatMulKernel& AmxKernel() { FT_CHECK(false); }

}  // namespace foretoken::kernels::cpu

#endif
