// SPDX-License-Identifier: Apache-2.0
// Where a running sum over the ordered tokens reaches a target, without putting them in order.
//
// The tokens are dealt into 512 buckets by value, each with the sum of what its tokens add. Summing buckets from the
// top tells the one in which the target is reached; its tokens are dealt once more between their own least and
// largest value, and so on until few are left, which are sorted, or only equal ones, which are counted. Rows in use
// take one pass to deal and one to collect the bucket; whatever the row, each further round deals the bucket's tokens
// alone. Sums are doubles, in an order that depends on the row alone.
//
// Both searches return the last token that is kept, and take values without NaN or +inf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/cpu/top_tokens.h"

namespace foretoken::kernels::cpu {

// Some of a row's tokens, ids ascending.
struct TokenView {
  std::span<const float> values;
  std::span<const int32_t> ids;  // empty: places in values
};

// What tokens weigh: exp((x - max) * inverse_temperature).
struct Weighing {
  float max = 0;
  float inverse_temperature = 1;
};

// The `count`-th token of the row, at least 1. Nothing where fewer tokens are above -inf.
std::optional<RankedToken> FindNth(std::span<const float> row, size_t count);

// The first tokens of the row up to and with `last`. Valid until the thread's next call.
TokenView CollectUpTo(std::span<const float> row, const RankedToken& last);

// The last token that has less than `share` of all weight before it; share < 1. `low` is a value below which the
// search will hardly end; what lies below is one bucket at first.
struct FindShareArgs {
  TokenView tokens;
  Weighing weighing;
  double share = 0;
  float low = 0;
};
RankedToken FindShare(const FindShareArgs& args);

}  // namespace foretoken::kernels::cpu
