// SPDX-License-Identifier: Apache-2.0
// Which experts the rows choose (ExpertsArgs), and the rows of each expert, side by side.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/matmul/matmul_grouped.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// A tile has rows of one expert. So many tiles have room for every possible choice.
struct ExpertTiles {
  int32_t max_rows = 0;  // of a tile
  int32_t max_tiles = 0;
};
ExpertTiles PlanExpertTiles(int64_t num_rows, int64_t num_chosen, int64_t num_experts);

// In device memory. P = T C choices; C = num_chosen.
struct ExpertChoices {
  // A row's experts in ascending order.
  int32_t* experts = nullptr;  // [T, C]
  float* weights = nullptr;    // [T, C]
  int32_t* places = nullptr;   // [T, C] the index of each choice in the list below
  // All choices, sorted by expert. The order of an expert's choices is arbitrary: no result depends on it (E1).
  int32_t* rows = nullptr;       // [P] the row of each choice
  GroupedTile* tiles = nullptr;  // [max_tiles] of this list; a tile's matrix is that of its expert
};

void ChooseExperts(const ExpertsArgs& args, const ExpertTiles& tiles, const ExpertChoices& choices,
                   cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
