// SPDX-License-Identifier: Apache-2.0
// The first tokens of rows by (value descending, id ascending), found as the tokens that a cut keeps. The device
// collects them; the host, which gets few, sorts them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

struct OrderedToken {
  float value;
  int32_t id;
};

class TopTokens {
 public:
  // Enqueues the search for the first top_k tokens of every scanned row whose task has a top_k and no other cut. From
  // then on the row's cut is at the last of them.
  TopTokens(const RowBatch& batch, Device& device);

  // The tokens of one row, in order; tokens at -inf are left out. Only in a callback of AtSynchronize.
  std::vector<OrderedToken> OfRow(size_t row) const;

 private:
  size_t capacity_ = 0;  // of a row's list
  const OrderedToken* tokens_ = nullptr;
  const unsigned* counts_ = nullptr;
};

}  // namespace foretoken::kernels::cuda
