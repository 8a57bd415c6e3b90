// SPDX-License-Identifier: Apache-2.0
// One pass over many tokens, for a search for a cut: it weighs the tokens and splits them by value. Values have no NaN
// or +inf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/draw/top_tokens.h"

namespace foretoken::kernels::cpu {

// A subset of a row's tokens, ids ascending.
struct TokenView {
  std::span<const float> values;
  std::span<const int32_t> ids;  // empty: `values` is the row, and an id is its place
};

// Turns values into weights: exp((x - max) / temperature). `max` is the largest value, so no weight exceeds 1.
struct Softmax {
  float max = 0;
  float temperature = 1;
};

// Values from `low` to `high`, both included.
struct ValueRange {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
};

// Memory for tokens. It grows and never shrinks, and it is not zeroed before it is written.
class TokenBuffer {
 public:
  void Reserve(size_t num_tokens);
  TokenView view() const { return {{values.data(), count}, {ids.data(), count}}; }

  std::vector<float> values;
  std::vector<int32_t> ids;
  size_t count = 0;
};

// Sums of weights above, inside and below the range of values.
struct SplitSums {
  double above = 0;
  double inside = 0;
  double below = 0;
};

struct SplitArgs {
  TokenView tokens;
  std::optional<Softmax> weighing;  // unset: every token above -inf weighs 1
  OrderedToken last = kNoneBehind;  // weighed tokens of a row behind this one count as absent
  ValueRange range;
};

// Writes the tokens inside the range to `inside`, which must not be the buffer that holds the tokens. Tokens at -inf
// are never inside, and weigh nothing.
SplitSums Split(const SplitArgs& args, TokenBuffer& inside);

}  // namespace foretoken::kernels::cpu
