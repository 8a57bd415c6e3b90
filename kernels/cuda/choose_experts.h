// SPDX-License-Identifier: Apache-2.0
// Which experts the rows choose (ExpertsArgs), and the rows of each expert, side by side.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/matmul/matmul_grouped.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// The tiles that hold the choices, whatever they are: those of an expert fill tiles of their own.
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
  int32_t* places = nullptr;   // [T, C] of the choices, when those of each expert stand together
  // The choices in that order. Those of an expert stand in any order, since none depends on another (E1).
  int32_t* rows = nullptr;       // [P]
  GroupedTile* tiles = nullptr;  // [max_tiles] their experts' matrices
};

void ChooseExperts(const ExpertsArgs& args, const ExpertTiles& tiles, const ExpertChoices& choices,
                   cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
