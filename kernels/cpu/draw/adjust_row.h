// SPDX-License-Identifier: Apache-2.0
// What a request does to a row of logits before temperature and cuts: bias, penalties, mask. Every rule of verification
// starts from the row that comes out of it.
//
// Arithmetic, all in f32: logit + bias; then, for a token of the context, / or * repetition penalty; then
// - frequency_penalty * occurrences; then - presence_penalty; a token that the mask leaves out gets -inf. NaN and +inf
// stay even under the mask, so that a broken row is not taken for a good one. Ids outside [0, V) in bias, counts and
// path are ignored, and so are bits of the mask from V on.
//
// Threads: the calling thread does the work.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

struct AdjustRowArgs {
  std::span<const float> logits;   // [V]
  const SamplingParams& sampling;  // of which the penalties
  std::span<const LogitBias> bias;
  std::span<const TokenCount> counts;
  std::span<const int32_t> path_token_ids;  // of the row's own path below the root: generated, but not in counts
  const uint32_t* mask = nullptr;           // as one of TreeToAccept::masks
};

// The given row where nothing changes it, otherwise a copy in the thread's workspace: valid until the next call.
std::span<const float> AdjustRow(const AdjustRowArgs& args);

}  // namespace foretoken::kernels::cpu
