// SPDX-License-Identifier: Apache-2.0
// Combines the scans of a row's tiles into the facts about the whole row. One warp does this.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>

#include "kernels/cuda/base/block_fold.cuh"
#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

__device__ inline TileScan NothingScanned() {
  return {.score = kImpossible, .max = kImpossible, .id = std::numeric_limits<int32_t>::max(), .is_finite = true};
}

struct BetterScan {
  __device__ TileScan operator()(const TileScan& a, const TileScan& b) const {
    const bool is_b_better = b.score > a.score || (b.score == a.score && b.id < a.id);
    return {.score = is_b_better ? b.score : a.score,
            .max = b.max > a.max ? b.max : a.max,
            .id = is_b_better ? b.id : a.id,
            .is_finite = a.is_finite && b.is_finite};
  }
};

__device__ inline DrawStatus StatusOf(const TileScan& row) {
  if (!row.is_finite) return DrawStatus::kNonFiniteLogits;
  return row.max == kImpossible ? DrawStatus::kEmptySupport : DrawStatus::kOk;
}

// All threads of a block of kThreads call it; `scratch` is shared memory for as many scans.
template <int kThreads>
__device__ TileScan MergeTiles(const RowWork& work, int32_t row, TileScan* scratch) {
  TileScan best = NothingScanned();
  for (int32_t tile = static_cast<int32_t>(threadIdx.x); tile < work.num_tiles; tile += kThreads) {
    best = BetterScan()(best, work.scans[int64_t{row} * work.num_tiles + tile]);
  }
  return BlockFold<kThreads>(best, BetterScan(), scratch);
}

}  // namespace foretoken::kernels::cuda
