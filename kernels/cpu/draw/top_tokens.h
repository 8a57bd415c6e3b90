// SPDX-License-Identifier: Apache-2.0
// The order in which every cut sees tokens, and a function for the first tokens in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace foretoken::kernels::cpu {

struct OrderedToken {
  float value = 0;
  int32_t id = 0;
  // Value descending, id ascending.
  friend bool operator<(const OrderedToken& a, const OrderedToken& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
  }
};

// Comes after every token.
inline constexpr OrderedToken kNoneBehind = {-std::numeric_limits<float>::infinity(),
                                             std::numeric_limits<int32_t>::max()};

// The first `count` tokens, in order. Tokens at -inf are left out. `row` has no NaN. Valid until the thread's next
// call.
std::span<const OrderedToken> TopTokens(std::span<const float> row, size_t count);

}  // namespace foretoken::kernels::cpu
