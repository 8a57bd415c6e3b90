// SPDX-License-Identifier: Apache-2.0
// The two ways to add the splits of a tile in their order (numeric_class.h). One block computes all of them, one after
// another. Or each block computes one: its sums go to memory in the layout of the threads' registers, 16 bytes per
// fragment and thread side by side. The block that arrives last at its tile reads the sums of all splits and adds them.
// It reads back its own sums too, so it does not matter which block is last.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/matmul/matmul_tile.cuh"

namespace foretoken::kernels::cuda {

// Adds a split's sums to the sum of the splits before it.
template <typename Sums>
__device__ void AddSplit(int32_t split, const Sums& sums, Sums& total) {
#pragma unroll
  for (int i = 0; i < std::extent_v<Sums, 0>; ++i) {
#pragma unroll
    for (int j = 0; j < std::extent_v<Sums, 1>; ++j) {
#pragma unroll
      for (int element = 0; element < 4; ++element) {
        const float sum = sums[i][j].sums[element];
        total[i][j].sums[element] = split == 0 ? sum : total[i][j].sums[element] + sum;
      }
    }
  }
}

// Computes the tile, all splits of it, and writes it.
template <typename Shape>
__device__ void MultiplyTile(ProductTile<Shape>& tile, int32_t num_splits) {
  typename ProductTile<Shape>::Sums total;
  tile.MultiplySplits(0, num_splits, [&](int32_t split, const auto& sums) { AddSplit(split, sums, total); });
  tile.Store(total);
}

// The memory for the sums of splits, and a count of arrived blocks per tile. Null if no splits meet in memory.
struct SplitSums {
  float4* sums = nullptr;        // [tiles, splits, fragments, threads]
  uint32_t* arrivals = nullptr;  // [tiles]
};

// The sums of a split, from the block's thread on.
template <typename Shape>
__device__ float4* SumsOfSplit(const SplitSums& splits, int64_t tile, int64_t num_splits, int64_t split) {
  constexpr int kFragments = Shape::kOutputFragments * Shape::kRowFragments;
  return splits.sums + (tile * num_splits + split) * kFragments * Shape::kThreads + threadIdx.x;
}

// True, for all threads of the block, if the block is the last of its tile.
__device__ inline bool ArrivesLast(uint32_t* arrivals, uint32_t num_splits) {
  __shared__ bool is_last;
  __threadfence();  // other blocks see this thread's sums before the count
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(arrivals, 1u) == num_splits - 1;
    if (is_last) *arrivals = 0;  // for the next product
  }
  __syncthreads();
  __threadfence();
  return is_last;
}

// A thread starts to read the next split's sums before it adds those of the present split.
template <typename Shape, typename Sums>
__device__ void AddSplits(const SplitSums& splits, int64_t tile, int32_t num_splits, Sums& sums) {
  constexpr int kFragments = Shape::kOutputFragments * Shape::kRowFragments;
  float4 next[kFragments];
  const auto read = [&](int32_t split) {
    const float4* from = SumsOfSplit<Shape>(splits, tile, num_splits, split);
#pragma unroll
    for (int i = 0; i < kFragments; ++i) next[i] = __ldcg(from + i * Shape::kThreads);
  };
  read(0);
  for (int32_t split = 0; split < num_splits; ++split) {
    float4 now[kFragments];
#pragma unroll
    for (int i = 0; i < kFragments; ++i) now[i] = next[i];
    if (split + 1 < num_splits) read(split + 1);
#pragma unroll
    for (int i = 0; i < Shape::kOutputFragments; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::kRowFragments; ++j) {
        const float4& more = now[i * Shape::kRowFragments + j];
        float(&sum)[4] = sums[i][j].sums;
        sum[0] = split == 0 ? more.x : sum[0] + more.x;
        sum[1] = split == 0 ? more.y : sum[1] + more.y;
        sum[2] = split == 0 ? more.z : sum[2] + more.z;
        sum[3] = split == 0 ? more.w : sum[3] + more.w;
      }
    }
  }
}

// Computes one split of the tile, the tile_idx-th of the product. The last block of the tile writes it.
template <typename Shape>
__device__ void MultiplySplit(ProductTile<Shape>& tile, int64_t tile_idx, int32_t split, int32_t num_splits,
                              const SplitSums& splits) {
  using Sums = typename ProductTile<Shape>::Sums;
  tile.MultiplySplits(split, split + 1, [&](int32_t, Sums& sums) {
    if (num_splits > 1) {
      float4* to = SumsOfSplit<Shape>(splits, tile_idx, num_splits, split);
#pragma unroll
      for (int i = 0; i < Shape::kOutputFragments; ++i) {
#pragma unroll
        for (int j = 0; j < Shape::kRowFragments; ++j) {
          const float(&sum)[4] = sums[i][j].sums;
          to[(i * Shape::kRowFragments + j) * Shape::kThreads] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        }
      }
      if (!ArrivesLast(splits.arrivals + tile_idx, num_splits)) return;
      AddSplits<Shape>(splits, tile_idx, num_splits, sums);
    }
    tile.Store(sums);
  });
}

}  // namespace foretoken::kernels::cuda
