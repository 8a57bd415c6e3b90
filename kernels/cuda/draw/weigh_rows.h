// SPDX-License-Identifier: Apache-2.0
// The weight of the tokens that the rows' cuts keep. It turns weights into probabilities.
#pragma once

#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

// Weighs tile by tile: fills tile_weights.
void WeighRows(const RowBatch& batch);

// The facts about a whole row, on the host.
struct RowTotal {
  DrawStatus status = DrawStatus::kOk;
  float max = 0;
  FixedWeight weight = 0;

  // The weight as a multiple of the largest one, in logarithm: log(sum of exp((x - max) / temperature)).
  double log_weight() const;
};

// Enqueues the sums of tile_weights. Returns their address, [rows], for callbacks of AtSynchronize. Rows that are not
// wanted have no total.
const RowTotal* TotalRows(const RowBatch& batch, Device& device);

}  // namespace foretoken::kernels::cuda
