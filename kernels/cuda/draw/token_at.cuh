// SPDX-License-Identifier: Apache-2.0
// Finds the token of a tile at which a sum over the tokens' measures, by ascending id, first exceeds a bound.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

// Returns the entry of `sums` in which the running total passes `rest`, and makes `rest` relative to that entry. Every
// thread may call it and gets the same result.
__device__ inline int PlaceOf(const FixedWeight* sums, int count, FixedWeight& rest) {
  int place = 0;
  for (; place + 1 < count && sums[place] <= rest; ++place) rest -= sums[place];
  return place;
}

// `rest` is less than the sum of measure_of(id) over the tile that begins at first_id. Every thread of a block of
// kTileThreads calls it and gets the id.
template <typename MeasureOf>
__device__ int32_t TokenAt(int32_t first_id, int32_t num_tokens, FixedWeight rest, const MeasureOf& measure_of) {
  constexpr int kTokensPerThread = kTileTokens / kTileThreads;
  __shared__ FixedWeight sums[kTileThreads];
  __shared__ int32_t found_id;
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t begin = first_id + thread * kTokensPerThread;
  const int32_t end = begin + kTokensPerThread < num_tokens ? begin + kTokensPerThread : num_tokens;
  FixedWeight sum = 0;
  for (int32_t id = begin; id < end; ++id) sum += measure_of(id);
  sums[thread] = sum;
  __syncthreads();
  if (thread == 0) {
    found_id = first_id + PlaceOf(sums, kTileThreads, rest) * kTokensPerThread;
    sums[0] = rest;
  }
  __syncthreads();
  if (begin == found_id) {
    int32_t id = begin;
    rest = sums[0];
    for (FixedWeight measure = measure_of(id); measure <= rest && id + 1 < end; measure = measure_of(id)) {
      rest -= measure;
      ++id;
    }
    sums[1] = static_cast<FixedWeight>(id);
  }
  __syncthreads();
  const auto id = static_cast<int32_t>(sums[1]);
  __syncthreads();
  return id;
}

}  // namespace foretoken::kernels::cuda
