// SPDX-License-Identifier: Apache-2.0
// Masks of allowed tokens from lists of ids, as the proposal protocol sends them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/speculation/allowed_tokens.h"

namespace foretoken::testing {

// A mask of num_bytes bytes, which allows nothing without ids.
inline std::string MaskBytes(const std::vector<int32_t>& ids, size_t num_bytes = 512) {
  std::string bytes(num_bytes, '\0');
  for (const int32_t id : ids) bytes[static_cast<size_t>(id) / 8] |= static_cast<char>(1 << id % 8);
  return bytes;
}

inline speculation::AllowedTokens AllowIds(const std::vector<int32_t>& ids) {
  return speculation::AllowedTokens(MaskBytes(ids));
}

// A mask that allows the ids below 8 * num_bytes.
inline speculation::AllowedTokens AllowAll(size_t num_bytes = 512) {
  return speculation::AllowedTokens(std::string(num_bytes, '\xFF'));
}

}  // namespace foretoken::testing
