// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/draw/score_row.h"

#include <cmath>
#include <limits>

#include "kernels/check.h"
#include "kernels/cpu/draw/logits_row.h"
#include "kernels/cpu/draw/top_tokens.h"

namespace foretoken::kernels::cpu {

RowLogprobs ScoreRow(std::span<const float> logits, int32_t token_id, int32_t num_top) {
  FT_CHECK(token_id >= 0 && static_cast<size_t>(token_id) < logits.size());
  const RowMax top = FindMax(logits);
  if (!top.is_finite || top.max == kImpossible) {
    return {.token = {token_id, std::numeric_limits<float>::quiet_NaN()}, .top = {}};
  }
  const double log_sum = std::log(SumOfExps(logits, top.max, 1.0f));
  const auto logprob = [&](float logit) { return static_cast<float>(double{logit} - top.max - log_sum); };
  RowLogprobs scores{.token = {token_id, logprob(logits[token_id])}, .top = {}};
  if (num_top <= 0) return scores;
  for (const OrderedToken& token : TopTokens(logits, num_top)) scores.top.push_back({token.id, logprob(token.value)});
  return scores;
}

}  // namespace foretoken::kernels::cpu
