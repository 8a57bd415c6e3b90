// SPDX-License-Identifier: Apache-2.0
// The first tokens of rows by (value descending, id ascending): what a cut at the last of them keeps. The device
// collects them; the host, which gets few, puts them in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

struct RankedToken {
  float value;
  int32_t id;
};

class TopTokens {
 public:
  // Enqueues the search for the first top_k tokens of every settled row whose task has a top_k and no other cut. The
  // row's cut is at the last of them from here on.
  TopTokens(const RowBatch& batch, Device& device);

  // Of one row, in order; tokens at -inf are left out. For a callback of AtSynchronize.
  std::vector<RankedToken> OfRow(size_t row) const;

 private:
  size_t capacity_ = 0;  // of a row's list
  const RankedToken* tokens_ = nullptr;
  const unsigned* counts_ = nullptr;
};

}  // namespace foretoken::kernels::cuda
