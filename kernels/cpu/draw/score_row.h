// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of one unmodified row at temperature 1: logit - log(sum of exp(logits)).
// A row with NaN or +inf, or without a finite entry, gives NaN for the token and no top tokens.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

RowLogprobs ScoreRow(std::span<const float> logits, int32_t token_id, int32_t num_top);

}  // namespace foretoken::kernels::cpu
