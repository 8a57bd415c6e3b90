// SPDX-License-Identifier: Apache-2.0
// The weight of what the cuts of settled rows keep, which makes probabilities of weights.
#pragma once

#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

// Tile by tile: fills tile_weights.
void WeighRows(const RowBatch& batch);

// A row as a whole, on the host.
struct RowTotal {
  DrawStatus status = DrawStatus::kOk;
  float max = 0;
  FixedWeight weight = 0;

  // Of the weight as a multiple of the largest one: log(sum of exp((x - max) / temperature)).
  double log_weight() const;
};

// Enqueues sums of tile_weights: where they are, [rows], for callbacks of AtSynchronize. Rows that are not wanted have
// no total.
const RowTotal* TotalRows(const RowBatch& batch, Device& device);

}  // namespace foretoken::kernels::cuda
