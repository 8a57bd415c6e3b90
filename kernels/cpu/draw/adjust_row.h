// SPDX-License-Identifier: Apache-2.0
// The changes that a request makes to a row of logits before temperature and cuts: bias, penalties, mask. Every rule of
// verification starts from the adjusted row.
//
// Arithmetic, all in f32: logit + bias; then, for a token of the context, / or * repetition penalty, minus
// frequency_penalty * occurrences, minus presence_penalty; then a token outside of the mask gets -inf. NaN and +inf
// stay even under the mask, so that a broken row does not pass for a good one. Ids outside [0, V) in bias, counts and
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
  const SamplingParams& sampling;  // only the penalties are read
  std::span<const LogitBias> bias;
  std::span<const TokenCount> counts;
  std::span<const int32_t> path_token_ids;  // tokens on the row's own path below the root: generated, but not in counts
  const uint32_t* mask = nullptr;           // as an entry of TreeToAccept::masks
};

// Returns the given row if nothing changes it, otherwise a copy in the thread's workspace: valid until the next call.
std::span<const float> AdjustRow(const AdjustRowArgs& args);

}  // namespace foretoken::kernels::cpu
