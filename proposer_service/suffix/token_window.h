// SPDX-License-Identifier: Apache-2.0
// The last tokens of a text, in adjacent memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace foretoken::proposer {

class TokenWindow {
 public:
  explicit TokenWindow(size_t length) : length_(length) { tokens_.reserve(kSlack * length); }

  void Push(int32_t token_id) {
    if (tokens_.size() == kSlack * length_) {
      std::copy(tokens_.end() - static_cast<ptrdiff_t>(length_), tokens_.end(), tokens_.begin());
      tokens_.resize(length_);
    }
    tokens_.push_back(token_id);
  }
  void Clear() { tokens_.clear(); }

  size_t size() const { return std::min(tokens_.size(), length_); }
  // The last num_tokens tokens, at most size().
  std::span<const int32_t> Last(size_t num_tokens) const { return std::span(tokens_).last(num_tokens); }

 private:
  static constexpr size_t kSlack = 4;  // the tokens move once in (kSlack - 1) lengths

  size_t length_;
  std::vector<int32_t> tokens_;
};

}  // namespace foretoken::proposer
