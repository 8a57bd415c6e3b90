// SPDX-License-Identifier: Apache-2.0
#include "common/speculation/allowed_tokens.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/string_view.h"

namespace foretoken::speculation {

static_assert(std::endian::native == std::endian::little, "words and the protocol's bytes are the same memory");

std::vector<uint32_t> AllowedTokens::Words(int32_t num_tokens) const {
  std::vector<uint32_t> words((static_cast<size_t>(num_tokens) + 31) / 32);
  std::memcpy(words.data(), bytes_->data(), std::min(bytes_->size(), words.size() * sizeof(uint32_t)));
  return words;
}

TokenTree KeepAllowed(const TokenTree& tree, const AllowedTokens& allowed) {
  std::vector<bool> is_kept(tree.nodes.size());
  std::vector<int32_t> kept;
  for (int32_t i = 0; i < tree.num_nodes(); ++i) {
    const TreeNode& node = tree.nodes[i];
    is_kept[i] = node.parent == kRootParent ? allowed.Allows(node.token_id) : is_kept[node.parent];
    if (is_kept[i]) kept.push_back(i);
  }
  return Keep(tree, kept);
}

std::string AllowedTokensBytes(std::span<const uint32_t> words, size_t max_bytes) {
  if (words.empty()) return {};
  const absl::string_view bytes(reinterpret_cast<const char*>(words.data()), words.size_bytes());
  const size_t last = bytes.find_last_not_of('\0');
  const size_t num_bytes = last == absl::string_view::npos ? 1 : last + 1;
  return num_bytes > max_bytes ? std::string() : std::string(bytes.substr(0, num_bytes));
}

}  // namespace foretoken::speculation
