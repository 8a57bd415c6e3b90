// SPDX-License-Identifier: Apache-2.0
// Folds one value per thread of a block, in an order that depends on the block's size alone (E1). Lane i of the first
// warp folds threads i, i + 32, ...; then its lanes are folded in a tree. The other warps wait and issue nothing, so
// the GPU can run other blocks.
#pragma once

#include <cuda_runtime.h>

namespace foretoken::kernels::cuda {

// Every thread of the block calls it and gets the result. `scratch` is shared memory for kThreads values. It must not
// be in use, and it is free again when this returns.
template <int kThreads, typename T, typename Fold>
__device__ T BlockFold(const T& value, const Fold& fold, T* scratch) {
  constexpr int kLanes = 32;
  static_assert(kThreads % kLanes == 0);
  const int thread = static_cast<int>(threadIdx.x);
  scratch[thread] = value;
  __syncthreads();
  if (thread < kLanes) {
    T folded = value;
    for (int i = thread + kLanes; i < kThreads; i += kLanes) folded = fold(folded, scratch[i]);
    for (int width = kLanes / 2; width > 0; width /= 2) {
      scratch[thread] = folded;
      __syncwarp();
      if (thread < width) folded = fold(folded, scratch[thread + width]);
      __syncwarp();
    }
    if (thread == 0) scratch[0] = folded;
  }
  __syncthreads();
  T result = scratch[0];
  __syncthreads();
  return result;
}

struct Plus {
  template <typename T>
  __device__ T operator()(const T& a, const T& b) const {
    return a + b;
  }
};

}  // namespace foretoken::kernels::cuda
