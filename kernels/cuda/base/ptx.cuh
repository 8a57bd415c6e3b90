// SPDX-License-Identifier: Apache-2.0
// The instructions without a name in CUDA C++, one function each. All inline PTX is here. The tests' emulated GPU has a
// file of the same name, tests/testing/emulated_cuda/kernels/cuda/base/ptx.cuh, which it includes in place of this one.
//
// Source: NVIDIA, "Parallel Thread Execution ISA"; each comment names the instruction. "Of a warp" means that all 32
// lanes of the warp call it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/dtype.h"

namespace foretoken::kernels::cuda::ptx {

__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// mma.sync, of a warp: sums += a b, all three spread over the lanes as mma.cuh says.
__device__ inline void MmaM16N8K16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same for f16.
__device__ inline void MmaF16M16N8K16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasGroupMma = true;
#else
inline constexpr bool kHasGroupMma = false;
#endif

// wgmma: sums += a b, for 8 kFragments columns of b. Four warps call it together, and the number of the first is a
// multiple of four. `a` is the warp's 16 rows as in mma.cuh's FragmentA, and sums[i] its FragmentC of columns 8 i ... 8
// i + 7. b lies in shared memory, aligned to 1,024 bytes: a column has 64 k in 128 bytes, and its piece p of 16 bytes
// is in place p ^ (column % 8). `step` names 16 of these k. Only code for compute capability 9.0 (sm_90a) has the
// instruction: kHasGroupMma. From BeginGroupMma to EndGroupMma nobody may touch sums, a and b.
template <int kFragments>
__device__ inline void GroupMma(float (*sums)[4], const uint32_t (&a)[4], const void* columns, int step) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  // The address, 1,024 bytes from eight columns to the next, and the pieces' order, which is called a swizzle.
  const uint64_t matrix = (SharedAddress(columns) + static_cast<uint32_t>(step) * 32) >> 4 | uint64_t{1} << 16 |
                          uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
  static_assert(kFragments == 8 || kFragments == 16);
  if constexpr (kFragments == 8) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
        : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]), "+f"(sums[1][1]),
          "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]), "+f"(sums[2][2]), "+f"(sums[2][3]),
          "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]), "+f"(sums[3][3]), "+f"(sums[4][0]), "+f"(sums[4][1]),
          "+f"(sums[4][2]), "+f"(sums[4][3]), "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]),
          "+f"(sums[6][0]), "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]), "+f"(sums[7][0]), "+f"(sums[7][1]),
          "+f"(sums[7][2]), "+f"(sums[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(matrix));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
        "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63"
        "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
        : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]), "+f"(sums[1][1]),
          "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]), "+f"(sums[2][2]), "+f"(sums[2][3]),
          "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]), "+f"(sums[3][3]), "+f"(sums[4][0]), "+f"(sums[4][1]),
          "+f"(sums[4][2]), "+f"(sums[4][3]), "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]),
          "+f"(sums[6][0]), "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]), "+f"(sums[7][0]), "+f"(sums[7][1]),
          "+f"(sums[7][2]), "+f"(sums[7][3]), "+f"(sums[8][0]), "+f"(sums[8][1]), "+f"(sums[8][2]), "+f"(sums[8][3]),
          "+f"(sums[9][0]), "+f"(sums[9][1]), "+f"(sums[9][2]), "+f"(sums[9][3]), "+f"(sums[10][0]), "+f"(sums[10][1]),
          "+f"(sums[10][2]), "+f"(sums[10][3]), "+f"(sums[11][0]), "+f"(sums[11][1]), "+f"(sums[11][2]),
          "+f"(sums[11][3]), "+f"(sums[12][0]), "+f"(sums[12][1]), "+f"(sums[12][2]), "+f"(sums[12][3]),
          "+f"(sums[13][0]), "+f"(sums[13][1]), "+f"(sums[13][2]), "+f"(sums[13][3]), "+f"(sums[14][0]),
          "+f"(sums[14][1]), "+f"(sums[14][2]), "+f"(sums[14][3]), "+f"(sums[15][0]), "+f"(sums[15][1]),
          "+f"(sums[15][2]), "+f"(sums[15][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(matrix));
  }
#else
  __trap();
#endif
}

// wgmma.fence. The registers and the memory of the next GroupMma are ready.
__device__ inline void BeginGroupMma() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// wgmma.commit_group: behind the last GroupMma. EndGroupMma waits for all of them.
__device__ inline void CommitGroupMma() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void EndGroupMma() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}

// fence.proxy.async: behind it and a barrier GroupMma sees what this thread wrote or copied to shared memory.
__device__ inline void ShareWithGroupMma() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// ldmatrix, of a warp: four 8 x 8 matrices of 16-bit elements. Lane 8 i + r points to row r of matrix i, 16 aligned
// bytes of shared memory; matrices[i] of lane l becomes elements 2 (l % 4) and the next of row l / 4 of matrix i.
__device__ inline void LoadMatrices(uint32_t (&matrices)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// The same, transposed: matrices[i] of lane l becomes elements l / 4 of rows 2 (l % 4) and the next of matrix i.
__device__ inline void LoadTransposedMatrices(uint32_t (&matrices)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// cp.async: copies num_bytes, at most 16, to 16 aligned bytes of shared memory and fills the rest of them with zeros.
// The bytes are there after a wait; other threads see them after a barrier behind that wait. `global` is 16-byte
// aligned. It is not read if num_bytes is 0.
__device__ inline void CopyAsync16(void* shared, const void* global, uint32_t num_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)), "l"(global), "r"(num_bytes)
               : "memory");
}

// cp.async.commit_group: makes a group of the thread's copies since the last commit, which may be none.
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// cp.async.wait_group: waits for all of the thread's groups but the last kPending.
template <int kPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// cvt.rn.f16x2.e4m3x2: converts two e4m3 codes, the first in the low byte, to f16, exactly. Compute capability 8.0 has
// no such instruction; there a code is shifted into place and reads as 2^-8 of its value.
__device__ inline uint32_t F16PairFromE4m3(uint32_t codes) {
  uint32_t pair;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<uint16_t>(codes)));
#else
  constexpr uint32_t kTwoTo8 = 0x5c005c00u;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(ShiftedE4m3Pair(codes)), "r"(kTwoTo8));
#endif
  return pair;
}

// cvt.rn.bf16x2: two values, each rounded to the nearest bf16, ties to even, the first in the low half.
__device__ inline uint32_t Bf16Pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// The block's shared memory of the size that its launch gives, aligned to 1,024 bytes.
__device__ inline void* DynamicSharedMemory() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return memory;
}

}  // namespace foretoken::kernels::cuda::ptx
