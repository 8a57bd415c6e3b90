// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix_match.h"

#include <algorithm>

namespace foretoken::proposer {

bool SharedSuffixMatch::Follow(const SuffixTree& tree, std::span<const int32_t> path) {
  const int32_t token_id = path.back();
  const bool found = tree.Extend(cursor_, token_id);
  bool follows = found;
  while (!follows && cursor_.depth > 0) {
    tree.Shorten(cursor_, *root_, path.last(cursor_.depth + 1).first(cursor_.depth));
    follows = tree.Extend(cursor_, token_id);
  }
  // Beyond max_depth the tree tells nothing apart.
  if (cursor_.depth > tree.max_depth()) tree.Shorten(cursor_, *root_, path.last(cursor_.depth));
  return found;
}

void SharedSuffixMatch::Search(const SuffixMemory::Reader& reader, const TokenWindow& window, size_t num_tokens) {
  version_ = reader.version();
  cursor_ = {};
  root_ = reader.RootOf(tenant_);
  if (!root_.has_value()) return;
  cursor_ = reader.tree().AtRoot(*root_);
  const std::span<const int32_t> path = window.Last(window.size());
  for (size_t i = path.size() - num_tokens; i < path.size(); ++i) Follow(reader.tree(), path.first(i + 1));
}

void SharedSuffixMatch::Advance(const TokenWindow& window, size_t num_new) {
  const SuffixMemory::Reader reader(memory_);
  appends_since_search_ += static_cast<int32_t>(std::min<size_t>(num_new, kAppendsPerSearch));
  if (version_ == reader.version() && cursor_.depth + num_new <= window.size()) {
    if (!root_.has_value()) return;
    const std::span<const int32_t> path = window.Last(window.size());
    for (size_t i = path.size() - num_new; i < path.size(); ++i) {
      const SuffixCursor before = cursor_;
      const bool found = Follow(reader.tree(), path.first(i + 1));
      if (before.depth > 0) confidence_.Record(before.depth, before.count, found);
    }
    return;
  }
  size_t num_tokens = cursor_.depth + num_new;
  if (version_ == 0 || appends_since_search_ >= kAppendsPerSearch) {
    num_tokens = reader.tree().max_depth();
    appends_since_search_ = 0;
  }
  Search(reader, window, std::min({num_tokens, window.size(), static_cast<size_t>(reader.tree().max_depth())}));
}

const SuffixCursor& SharedSuffixMatch::Get(const SuffixMemory::Reader& reader, const TokenWindow& window) {
  if (version_ != reader.version()) Search(reader, window, cursor_.depth);
  return cursor_;
}

}  // namespace foretoken::proposer
