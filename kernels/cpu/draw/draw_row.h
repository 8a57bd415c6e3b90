// SPDX-License-Identifier: Apache-2.0
// Draws a token from one row of logits: argmax_v (log target_prob(v) + g(v)), see AcceptTreesArgs and kernels/philox.h.
//
// The score, in f32, is (adjusted - largest adjusted) * (1 / temperature) + g, over the row that AdjustRow gives. A
// logit of -inf says impossible and is allowed. NaN or +inf among the row's V entries, or made by the adjustments, is
// kNonFiniteLogits; a row where all is impossible is kEmptySupport.
//
// The first few tokens by that score, rather than the first one, are what the target's draw most likely is where the
// row is a draft model's: DrawTopTokens.
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
  int32_t token_id = 0;  // meaningful when kOk
};

// `t` is the index of the token to draw.
RowDraw DrawRow(const AdjustRowArgs& args, uint32_t t);

// The tokens of the largest draft_prob, with its logarithm; see BranchRowsArgs.
RowChildren TopDraftProbs(std::span<const float> logits, const SamplingParams& sampling, int32_t count);

// The first `count` tokens by score, or all that the cuts keep where they are fewer; see BranchRowsArgs.
RowChildren DrawTopTokens(std::span<const float> logits, const SamplingParams& sampling, uint32_t t, int32_t count);

}  // namespace foretoken::kernels::cpu
