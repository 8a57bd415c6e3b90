// SPDX-License-Identifier: Apache-2.0
// The functions of kernels/cuda/base/ptx.cuh on an emulated GPU. The comments there are the contract.
//
// A step of mma.sync is one chain of fused multiply-adds, in the order of k, onto the sum so far. A real GPU has
// another order within a step. Both orders are fixed, and the same for every row and column. A copy arrives when the
// thread waits for it and not before, and its target loses its content at once. So a missing wait shows, and so does a
// copy into a buffer that is still read.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace foretoken::kernels::cuda::ptx {

void MmaM16N8K16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void MmaF16M16N8K16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
inline constexpr bool kHasGroupMma = true;
// Multiplies at once: it does not show a missing EndGroupMma.
void GroupMmaOfColumns(float (*sums)[4], int num_fragments, const uint32_t (&a)[4], const void* columns, int step);
template <int kFragments>
void GroupMma(float (*sums)[4], const uint32_t (&a)[4], const void* columns, int step) {
  GroupMmaOfColumns(sums, kFragments, a, columns, step);
}
inline void BeginGroupMma() {}
inline void CommitGroupMma() {}
inline void EndGroupMma() {}
inline void ShareWithGroupMma() {}

void LoadMatrices(uint32_t (&matrices)[4], const void* row);
void LoadTransposedMatrices(uint32_t (&matrices)[4], const void* row);

void CopyAsync16(void* shared, const void* global, uint32_t num_bytes);
void CommitCopies();
void WaitForAllCopiesBut(int num_pending);
template <int kPending>
void WaitForCopies() {
  WaitForAllCopiesBut(kPending);
}

uint32_t F16PairFromE4m3(uint32_t codes);
uint32_t Bf16Pair(float low, float high);

inline void* DynamicSharedMemory() { return foretoken::testing::DynamicSharedMemory(); }

}  // namespace foretoken::kernels::cuda::ptx
