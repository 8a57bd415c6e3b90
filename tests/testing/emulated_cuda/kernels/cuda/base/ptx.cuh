// SPDX-License-Identifier: Apache-2.0
// What kernels/cuda/base/ptx.cuh says, on an emulated GPU: the comments there are the contract.
//
// A step of mma.sync is one chain of fused multiply-adds, in the order of k, onto the sum so far. A GPU has an order of
// its own within a step; both are fixed, and the same for every row and column. A copy arrives when it is waited for
// and not before, and what it will overwrite is lost at once, so that a missing wait and a buffer that is still being
// read both show.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace foretoken::kernels::cuda::ptx {

void MmaM16N8K16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void MmaF16M16N8K16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
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
