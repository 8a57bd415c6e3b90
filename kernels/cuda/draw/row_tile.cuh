// SPDX-License-Identifier: Apache-2.0
// A tile of a row in the registers of a block. Thread i holds the groups of four neighbours i, i + kTileThreads, ...,
// so that a warp reads side by side and a group is one Philox block.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

inline constexpr int kGroupTokens = 4;
inline constexpr int kGroupsPerThread = kTileTokens / kTileThreads / kGroupTokens;

struct alignas(16) TokenGroup {
  float values[kGroupTokens];
};

struct RowTile {
  TokenGroup groups[kGroupsPerThread];
};

__device__ inline int32_t FirstIdOfTile() { return static_cast<int32_t>(blockIdx.x) * kTileTokens; }

// The first id of this thread's group.
__device__ inline int32_t FirstIdOfGroup(int group) {
  return FirstIdOfTile() + (group * kTileThreads + static_cast<int32_t>(threadIdx.x)) * kGroupTokens;
}

// Entries from V on are impossible.
__device__ inline RowTile LoadTile(const float* logits, int32_t num_tokens) {
  RowTile tile;
  const bool is_aligned = reinterpret_cast<uintptr_t>(logits) % alignof(TokenGroup) == 0;
#pragma unroll
  for (int group = 0; group < kGroupsPerThread; ++group) {
    const int32_t first_id = FirstIdOfGroup(group);
    if (is_aligned && first_id + kGroupTokens <= num_tokens) {
      tile.groups[group] = *reinterpret_cast<const TokenGroup*>(logits + first_id);
      continue;
    }
    for (int i = 0; i < kGroupTokens; ++i) {
      tile.groups[group].values[i] = first_id + i < num_tokens ? logits[first_id + i] : kImpossible;
    }
  }
  return tile;
}

// Calls use(x, id) for every entry of the tile that this thread holds, ids ascending.
template <typename Use>
__device__ void ForEachToken(const RowTile& tile, const Use& use) {
#pragma unroll
  for (int group = 0; group < kGroupsPerThread; ++group) {
    for (int i = 0; i < kGroupTokens; ++i) use(tile.groups[group].values[i], FirstIdOfGroup(group) + i);
  }
}

__device__ inline bool IsWanted(const RowTask& task) { return task.is_wanted == nullptr || *task.is_wanted != 0; }

// For passes after a row's scan.
__device__ inline bool IsDrawable(const RowWork& work, int32_t row) {
  return IsWanted(work.tasks[row]) && work.states[row].status == DrawStatus::kOk;
}

}  // namespace foretoken::kernels::cuda
