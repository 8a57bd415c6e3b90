// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul_integer_avx_vnni.h"

#include "kernels/check.h"

#if defined(__x86_64__)

#define FORETOKEN_BYTES_TARGET "avx2,fma,f16c,avxvnni"
#include "kernels/cpu/matmul/matmul_integer_256.h"

HWY_PUSH_ATTRIBUTES(FORETOKEN_BYTES_TARGET)

namespace foretoken::kernels::cpu {
namespace {

struct AvxVnniBytes {
  static constexpr bool kHasDots = true;
  static __m256i AddDots(__m256i sums, __m256i codes, __m256i x) { return _mm256_dpbusd_avx_epi32(sums, codes, x); }
};

}  // namespace

const MatMulKernel& AvxVnniIntegerKernel(const IntegerPanels& panels) {
  return vectors256::IntegerKernelOf<AvxVnniBytes>(panels);
}

}  // namespace foretoken::kernels::cpu

HWY_POP_ATTRIBUTES

#else

namespace foretoken::kernels::cpu {

const MatMulKernel& AvxVnniIntegerKernel(const IntegerPanels&) { FT_CHECK(false); }

}  // namespace foretoken::kernels::cpu

#endif
