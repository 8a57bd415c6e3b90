// SPDX-License-Identifier: Apache-2.0
// Where top_k, top_p and min_p cut a row. All three keep a prefix of the tokens ordered by (logit descending, id
// ascending), so together they are one cut: the last token kept.
//
// - top_k keeps the first k;
// - top_p keeps a token while the probability before it, within what top_k kept, is below top_p;
// - min_p keeps a token whose probability is at least min_p times the largest.
// The order is that of the adjusted logits before temperature, which does not change it and must not round it into
// ties. The first token is always kept.
#pragma once

#include <span>

#include "kernels/filter_cut.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

// `row` holds adjusted logits without NaN or +inf; `max` is its largest, finite. Temperature is not below 1e-5.
FilterCut FindCut(std::span<const float> row, float max, const SamplingParams& sampling);

}  // namespace foretoken::kernels::cpu
