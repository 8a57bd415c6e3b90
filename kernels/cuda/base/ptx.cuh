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

// The block's shared memory of the size that its launch gives, aligned to 128 bytes.
__device__ inline void* DynamicSharedMemory() {
  extern __shared__ __align__(128) unsigned char memory[];
  return memory;
}

}  // namespace foretoken::kernels::cuda::ptx
