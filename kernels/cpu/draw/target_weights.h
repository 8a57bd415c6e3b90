// SPDX-License-Identifier: Apache-2.0
// target_prob of one row as weights: what rejection sampling compares with draft_prob. The same filters as the keyed
// draw's, so that both rules speak of one distribution.
//
// weight(v) = exp((adjusted - largest adjusted) / temperature) for tokens that the cuts keep, in f32, and 0 for the
// others; below the greedy temperature 1 for the lowest id that has the largest value. Errors as in draw_row.h.
//
// Threads: the calling thread does the work.
#pragma once

#include "kernels/cpu/draw/adjust_row.h"
#include "kernels/rejection_sampling.h"

namespace foretoken::kernels::cpu {

// The weights lie in the thread's workspace: valid until the next call.
RowWeights TargetWeights(const AdjustRowArgs& args);

}  // namespace foretoken::kernels::cpu
