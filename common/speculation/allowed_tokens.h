// SPDX-License-Identifier: Apache-2.0
// The tokens that may come next in a sequence, as the proposal protocol sends them: id i may come if bit i % 8 of byte
// i / 8 is set. Ids beyond the last byte may not come.
//
//   const AllowedTokens allowed(advance.allowed_tokens());
//   if (allowed.Allows(token_id)) ...
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/speculation/token_tree.h"

namespace foretoken::speculation {

// A mask. Copies share its bytes, because a stream and a growth thread both keep the mask of a session.
class AllowedTokens {
 public:
  // Any token may come.
  AllowedTokens() = default;
  // Without bytes any token may come.
  explicit AllowedTokens(std::string bytes)
      : bytes_(bytes.empty() ? nullptr : std::make_shared<const std::string>(std::move(bytes))) {}

  bool allow_any() const { return bytes_ == nullptr; }
  // The id is at least 0.
  bool Allows(int32_t token_id) const {
    if (allow_any()) return true;
    const size_t byte_idx = static_cast<uint32_t>(token_id) / 8;
    return byte_idx < bytes_->size() && (static_cast<uint8_t>((*bytes_)[byte_idx]) >> token_id % 8 & 1) != 0;
  }
  // [ceil(num_tokens / 32)] The mask as the kernels read it: bit id % 32 of word id / 32. Not for a mask that allows
  // any token.
  std::vector<uint32_t> Words(int32_t num_tokens) const;

  friend bool operator==(const AllowedTokens& a, const AllowedTokens& b) {
    return a.bytes_ == b.bytes_ || (a.bytes_ != nullptr && b.bytes_ != nullptr && *a.bytes_ == *b.bytes_);
  }

 private:
  std::shared_ptr<const std::string> bytes_;  // null: any token
};

// The part of a tree of guesses below the children of the root that may come.
TokenTree KeepAllowed(const TokenTree& tree, const AllowedTokens& allowed);

// The bytes of a mask whose bit id % 32 of word id / 32 stands for an id. Zero bytes at the end are cut off, but one
// byte stays if the mask allows nothing. Empty, so that any token may come: there are no words, or more than max_bytes
// bytes stay.
std::string AllowedTokensBytes(std::span<const uint32_t> words, size_t max_bytes);

}  // namespace foretoken::speculation
