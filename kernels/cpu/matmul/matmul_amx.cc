// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul_amx.h"

#include "kernels/check.h"

#if defined(__x86_64__)
#include "kernels/cpu/matmul/matmul_amx_tile.h"

namespace foretoken::kernels::cpu {
namespace {

// In assembly, because a compiler's intrinsics take the tile number only as a literal, never as a template argument.
struct TileRegisters {
  static void Configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  static void Release() { asm volatile("tilerelease"); }

  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }

  template <int kTile>
  static void Load(const void* rows, int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride_bytes), "i"(kTile) : "memory");
  }

  template <int kTile>
  static void Store(void* rows, int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(rows), "r"(stride_bytes), "i"(kTile) : "memory");
  }

  template <int kAcc, int kA, int kB>
  static void MultiplyAdd() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kAcc), "i"(kA), "i"(kB));
  }
};

}  // namespace

const MatMulKernel& AmxKernel() { return AmxTile<TileRegisters>::kKernel; }

}  // namespace foretoken::kernels::cpu

#else

namespace foretoken::kernels::cpu {

const MatMulKernel& AmxKernel() { FT_CHECK(false); }

}  // namespace foretoken::kernels::cpu

#endif
