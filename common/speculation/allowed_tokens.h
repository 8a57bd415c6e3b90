// SPDX-License-Identifier: Apache-2.0
// The tokens that may come next in a sequence, as the proposal protocol sends them: id i may come if bit i % 8 of byte
// i / 8 is set. Ids beyond the last byte may not come.
//
//   const AllowedTokens allowed(advance.allowed_tokens());
//   if (allowed.Allows(token_id)) ...
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::speculation {

// A view of a mask.
class AllowedTokens {
 public:
  // Any token may come.
  AllowedTokens() = default;
  // Without bytes any token may come.
  explicit AllowedTokens(absl::string_view bytes) : bytes_(bytes) {}

  bool allow_any() const { return bytes_.empty(); }
  // The id is at least 0.
  bool Allows(int32_t token_id) const {
    if (allow_any()) return true;
    const size_t byte_idx = static_cast<uint32_t>(token_id) / 8;
    return byte_idx < bytes_.size() && (static_cast<uint8_t>(bytes_[byte_idx]) >> token_id % 8 & 1) != 0;
  }

 private:
  absl::string_view bytes_;
};

// The bytes of a mask whose bit id % 32 of word id / 32 stands for an id. Zero bytes at the end are cut off, but one
// byte stays if the mask allows nothing. Empty, so that any token may come: there are no words, or more than max_bytes
// bytes stay.
std::string AllowedTokensBytes(std::span<const uint32_t> words, size_t max_bytes);

}  // namespace foretoken::speculation
