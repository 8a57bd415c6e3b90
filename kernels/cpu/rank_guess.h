// SPDX-License-Identifier: Apache-2.0
// Guesses the values between which a search by rank ends. A guess may be wrong; the same tokens give the same guess.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "kernels/cpu/token_split.h"
#include "kernels/cpu/top_tokens.h"

namespace foretoken::kernels::cpu {

// The search as it stands: the end is the last token that has less than `target` of weight before it.
struct RankSearch {
  TokenView tokens;  // among which it is
  std::optional<Softmax> weighing;
  double above = 0;  // weight before all of them
  double total = 0;  // their own
  double target = 0;

  double WeightOf(float value) const;
};

// From a sample in order, each of which stands for `stride` tokens. Fits weights that are much alike; the sampling is
// that of Floyd and Rivest's SELECT (1975).
ValueRange GuessBySample(const RankSearch& search, double stride, std::span<const RankedToken> sample);

// Every stride-th token inside the range, in order. Valid until the thread's next call.
std::span<const RankedToken> SampleTokens(const TokenView& tokens, size_t stride, const ValueRange& range);

// Where the tokens of the row up to `last` have `share` of their own weight, by a histogram: a sample says little about
// weights, most of which a few tokens can have.
ValueRange GuessShare(std::span<const float> row, const RankedToken& last, const Softmax& softmax, double share);

}  // namespace foretoken::kernels::cpu
