// SPDX-License-Identifier: Apache-2.0
#include "common/speculation/allowed_tokens.h"

#include <bit>

namespace foretoken::speculation {

std::string AllowedTokensBytes(std::span<const uint32_t> words, size_t max_bytes) {
  static_assert(std::endian::native == std::endian::little);
  if (words.empty()) return {};
  const absl::string_view bytes(reinterpret_cast<const char*>(words.data()), words.size_bytes());
  const size_t last = bytes.find_last_not_of('\0');
  const size_t num_bytes = last == absl::string_view::npos ? 1 : last + 1;
  return num_bytes > max_bytes ? std::string() : std::string(bytes.substr(0, num_bytes));
}

}  // namespace foretoken::speculation
