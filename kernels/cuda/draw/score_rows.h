// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of one token of each row, and of the row's most likely tokens, from the unmodified row at
// temperature 1: logit - log(sum of exp(logits)). A row with NaN or +inf, or without a finite entry, gives NaN for the
// token and no top tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cuda/draw/row_batch.h"
#include "kernels/cuda/draw/top_tokens.h"
#include "kernels/cuda/draw/weigh_rows.h"

namespace foretoken::kernels::cuda {

// Pointers are the device's.
struct RowToScore {
  const float* logits = nullptr;       // [width]
  const int32_t* token_id = nullptr;   // below the width
  const int32_t* is_wanted = nullptr;  // as in RowTask
  int32_t num_top = 0;
};

class RowScores {
 public:
  // Enqueues the work.
  RowScores(const std::vector<RowToScore>& rows, int32_t width, Device& device);

  // The scores of a wanted row. Only in a callback of AtSynchronize.
  RowLogprobs OfRow(size_t row) const;

 private:
  const RowTotal* totals_ = nullptr;
  const OrderedToken* given_ = nullptr;  // the given tokens with their logits
  std::optional<TopTokens> top_;         // unset: no row wants any
};

}  // namespace foretoken::kernels::cuda
