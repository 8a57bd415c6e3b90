// SPDX-License-Identifier: Apache-2.0
// The pass over many tokens that a search for a cut makes: it weighs them and splits them by value. Values have no NaN
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

// Some tokens of a row, ids ascending.
struct TokenView {
  std::span<const float> values;
  std::span<const int32_t> ids;  // empty: places in `values`, which is the row
};

// What makes weights of values: exp((x - max) / temperature). `max` is the largest, so no weight exceeds 1.
struct Softmax {
  float max = 0;
  float temperature = 1;
};

// Values from `low` to `high`, both included.
struct ValueRange {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
};

// Tokens in memory that grows and never shrinks, so that nothing is filled which is then overwritten.
class TokenBuffer {
 public:
  void Reserve(size_t num_tokens);
  TokenView view() const { return {{values.data(), count}, {ids.data(), count}}; }

  std::vector<float> values;
  std::vector<int32_t> ids;
  size_t count = 0;
};

// Sums of weights, by where a token's value is.
struct SplitSums {
  double above = 0;
  double inside = 0;
  double below = 0;
};

struct SplitArgs {
  TokenView tokens;
  std::optional<Softmax> weighing;  // unset: every token above -inf weighs 1
  RankedToken last = kNoneBehind;   // weighed tokens of a row behind this one are as good as not there
  ValueRange range;
};

// Leaves the tokens inside the range in `inside`, which is another buffer than the one the tokens are in. Those at -inf
// are never inside, and weigh nothing.
SplitSums Split(const SplitArgs& args, TokenBuffer& inside);

}  // namespace foretoken::kernels::cpu
