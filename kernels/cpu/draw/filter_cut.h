// SPDX-License-Identifier: Apache-2.0
// Finds the place where top_k, top_p and min_p cut a row. All three keep a prefix of the tokens ordered by (logit
// descending, id ascending). So together they are one cut, given by the last kept token.
//
// - top_k keeps the first k;
// - top_p keeps a token while the probability before it, within the tokens that top_k kept, is below top_p;
// - min_p keeps a token whose probability is at least min_p times the largest.
// The order is that of the adjusted logits before temperature. Temperature does not change the order and must not round
// logits into ties. The first token is always kept.
#pragma once

#include <span>

#include "kernels/filter_cut.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

// `row` holds adjusted logits without NaN or +inf; `max` is its largest, finite. Temperature is not below 1e-5.
FilterCut FindCut(std::span<const float> row, float max, const SamplingParams& sampling);

}  // namespace foretoken::kernels::cpu
