// SPDX-License-Identifier: Apache-2.0
// Draws a token from one row of logits: argmax_v (log target_prob(v) + g(v)). See AcceptTreesArgs and kernels/philox.h.
//
// The score, in f32, is (adjusted - largest adjusted) * (1 / temperature) + g, over the row that AdjustRow returns. A
// logit of -inf is allowed and makes the token impossible. NaN or +inf among the row's V entries, also if the
// adjustments made it, is kNonFiniteLogits. A row of only impossible tokens is kEmptySupport.
//
// DrawTopTokens finds the first few tokens by that score. If the row is a draft model's, these are the tokens that the
// target most likely draws.
//
// Threads: a row is drawn by the calling thread alone.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/draw/adjust_row.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

struct RowDraw {
  DrawStatus status = DrawStatus::kOk;
  int32_t token_id = 0;  // valid if kOk
};

// `t` is the index of the token to draw.
RowDraw DrawRow(const AdjustRowArgs& args, uint32_t t);

// The tokens with the largest draft_prob, and its logarithm; see BranchRowsArgs.
RowChildren TopDraftProbs(std::span<const float> logits, const SamplingParams& sampling, int32_t count);

// The first `count` tokens by score, or all tokens that the cuts keep if they are fewer; see BranchRowsArgs.
RowChildren DrawTopTokens(std::span<const float> logits, const SamplingParams& sampling, uint32_t t, int32_t count);

}  // namespace foretoken::kernels::cpu
