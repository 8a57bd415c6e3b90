// SPDX-License-Identifier: Apache-2.0
// The sum of one value per thread of a block, in a tree whose shape depends on the block's size alone (E1).
#pragma once

#include <cuda_runtime.h>

namespace foretoken::kernels::cuda {

// Every thread of the block calls it and gets the sum. `scratch` is shared memory for kThreads values, free again after
// the block's next __syncthreads(). kThreads is a power of two.
template <int kThreads>
__device__ float BlockSum(float value, float* scratch) {
  static_assert((kThreads & (kThreads - 1)) == 0);
  const int thread = static_cast<int>(threadIdx.x);
  scratch[thread] = value;
  __syncthreads();
  for (int width = kThreads / 2; width > 0; width /= 2) {
    if (thread < width) scratch[thread] += scratch[thread + width];
    __syncthreads();
  }
  return scratch[0];
}

}  // namespace foretoken::kernels::cuda
