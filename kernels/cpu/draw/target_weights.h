// SPDX-License-Identifier: Apache-2.0
// target_prob of one row as weights, for rejection sampling to compare with draft_prob. The filters are those of the
// keyed draw, so both rules have one distribution.
//
// weight(v) = exp((adjusted - largest adjusted) / temperature) in f32 for tokens that the cuts keep, and 0 for the
// others. Below the greedy temperature the weight is 1 for the lowest id that has the largest value. Errors as in
// draw_row.h.
//
// Threads: the calling thread does the work.
#pragma once

#include "kernels/cpu/draw/adjust_row.h"
#include "kernels/rejection_sampling.h"

namespace foretoken::kernels::cpu {

// The weights lie in the thread's workspace: valid until the next call.
RowWeights TargetWeights(const AdjustRowArgs& args);

}  // namespace foretoken::kernels::cpu
