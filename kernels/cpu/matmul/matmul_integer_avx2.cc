// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul_integer_avx2.h"

#include "kernels/check.h"

#if defined(__x86_64__)

#define FORETOKEN_BYTES_TARGET "avx2,fma,f16c"
#include "kernels/cpu/matmul/matmul_integer_256.h"

namespace foretoken::kernels::cpu {
namespace {

struct Avx2Bytes {
  static constexpr bool kHasDots = false;
};

}  // namespace

const MatMulKernel& Avx2IntegerKernel(const IntegerPanels& panels) {
  return vectors256::IntegerKernelOf<Avx2Bytes>(panels);
}

}  // namespace foretoken::kernels::cpu

#else

namespace foretoken::kernels::cpu {

const MatMulKernel& Avx2IntegerKernel(const IntegerPanels&) { FT_CHECK(false); }

}  // namespace foretoken::kernels::cpu

#endif
