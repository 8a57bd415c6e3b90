// SPDX-License-Identifier: Apache-2.0
// Draws a token from one row of logits: argmax_v (log target_prob(v) + g(v)), see AcceptTreesArgs and kernels/philox.h.
//
// Arithmetic, all in f32: logit + bias; then, for a token of the context, / or * repetition penalty; then
// - frequency_penalty * occurrences; then - presence_penalty. The score is (adjusted - largest adjusted) *
// (1 / temperature) + g. A logit of -inf says impossible and is allowed. NaN or +inf among the row's first V entries,
// or made by the adjustments, is kNonFiniteLogits; a row where all is impossible is kEmptySupport.
// Ids outside [0, V) in bias, counts, path and bans are ignored.
//
// Threads: a row is drawn by the calling thread alone.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

struct DrawRowArgs {
  std::span<const float> logits;  // [V]
  const SamplingParams& sampling;
  uint32_t t = 0;
  std::span<const LogitBias> bias;
  std::span<const TokenCount> counts;
  std::span<const int32_t> path_token_ids;  // of the row's own path below the root: generated, but not in counts
  std::span<const int32_t> banned_ids;
};

struct RowDraw {
  DrawStatus status = DrawStatus::kOk;
  int32_t token_id = 0;  // meaningful when kOk
};

RowDraw DrawRow(const DrawRowArgs& args);

}  // namespace foretoken::kernels::cpu
