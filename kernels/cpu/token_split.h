// SPDX-License-Identifier: Apache-2.0
// The passes over many tokens that a search for a cut makes: weighing them, and splitting them by value. Values have no
// NaN or +inf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/top_tokens.h"

namespace foretoken::kernels::cpu {

// Some tokens of a row, ids ascending.
struct TokenView {
  std::span<const float> values;
  std::span<const int32_t> ids;    // empty: places in `values`, which is the row
  std::span<const float> weights;  // empty: each weighs 1
};

// What values become weights by: exp((x - max) / temperature). `max` is the row's largest value, so no weight
// exceeds 1.
struct Softmax {
  float max = 0;
  float temperature = 1;
};

// Fills `weights`, one for each entry of the row, and returns their sum. A token behind `last` in the order of cuts, or
// at -inf, weighs nothing.
double Weigh(std::span<const float> row, const Softmax& softmax, const RankedToken& last, std::span<float> weights);

// Values from `low` to `high`, both included.
struct ValueRange {
  float low = 0;
  float high = 0;
};

// Tokens in memory that grows and never shrinks, so that nothing is filled which is then overwritten.
class TokenBuffer {
 public:
  void Reserve(size_t num_tokens);
  TokenView view() const;

  std::vector<float> values;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  size_t count = 0;
  bool has_weights = false;
};

struct SplitSums {
  double above = 0;
  double inside = 0;
};

// Leaves the tokens inside the range in `inside`, which is another buffer than the one `tokens` is in.
SplitSums Split(const TokenView& tokens, const ValueRange& range, TokenBuffer& inside);

}  // namespace foretoken::kernels::cpu
