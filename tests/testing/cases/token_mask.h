// SPDX-License-Identifier: Apache-2.0
// Bit masks of tokens in the form of kernels::TreeToAccept.
#pragma once

#include <cstdint>
#include <vector>

namespace foretoken::testing {

// Allows all of `num_tokens` except the ids. Bits from num_tokens on are set too, and must not matter.
inline std::vector<uint32_t> MaskWithout(int32_t num_tokens, const std::vector<int32_t>& ids) {
  std::vector<uint32_t> words((num_tokens + 31) / 32, ~uint32_t{0});
  for (const int32_t id : ids) words[id / 32] &= ~(uint32_t{1} << id % 32);
  return words;
}

}  // namespace foretoken::testing
