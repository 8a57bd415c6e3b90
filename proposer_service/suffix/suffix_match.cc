// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix/suffix_match.h"

#include <algorithm>

namespace foretoken::proposer {
namespace {

bool PrecedesAllowed(const SuffixTree& tree, const SuffixCursor& match, const speculation::AllowedTokens& allowed) {
  if (!match.at_node()) {
    const int32_t token_id = tree.NextToken(match);
    return token_id == SuffixTree::kEndOfText || allowed.Allows(token_id);
  }
  return std::ranges::any_of(tree.Edges(match), [&](const SuffixEdge& edge) { return allowed.Allows(edge.token_id); });
}

}  // namespace

SuffixCursor LongestAllowed(const SuffixTree& tree, SuffixCursor match, const AllowedEnd& end) {
  while (match.depth > 0 && !PrecedesAllowed(tree, match, end.allowed)) {
    tree.Shorten(match, end.root, end.window.Last(match.depth));
  }
  return match;
}

bool SharedSuffixMatch::Follow(const SuffixTree& tree, std::span<const int32_t> path) {
  const int32_t token_id = path.back();
  const bool found = tree.Extend(cursor_, token_id);
  bool follows = found;
  while (!follows && cursor_.depth > 0) {
    tree.Shorten(cursor_, *root_, path.last(cursor_.depth + 1).first(cursor_.depth));
    follows = tree.Extend(cursor_, token_id);
  }
  // The tree does not distinguish longer strings than max_depth.
  if (cursor_.depth > tree.max_depth()) tree.Shorten(cursor_, *root_, path.last(cursor_.depth));
  return found;
}

void SharedSuffixMatch::Search(const SuffixMemory::Reader& reader, const TokenWindow& window, size_t num_tokens) {
  const size_t whole = std::min<size_t>(window.size(), reader.tree().max_depth());
  num_tokens = std::min(num_tokens, whole);
  is_searched_in_part_ = num_tokens < whole;
  version_ = reader.version();
  cursor_ = {};
  root_ = reader.RootOf(owner_);
  if (!root_.has_value()) return;
  cursor_ = reader.tree().AtRoot(*root_);
  const std::span<const int32_t> path = window.Last(window.size());
  for (size_t i = path.size() - num_tokens; i < path.size(); ++i) Follow(reader.tree(), path.first(i + 1));
}

void SharedSuffixMatch::Advance(const TokenWindow& window, size_t num_new) {
  const SuffixMemory::Reader reader(memory_);
  appends_since_search_ += static_cast<int32_t>(std::min<size_t>(num_new, kAppendsPerSearch));
  const bool is_whole_due = is_searched_in_part_ && appends_since_search_ >= kAppendsPerSearch;
  if (version_ == reader.version() && cursor_.depth + num_new <= window.size() && !is_whole_due) {
    if (!root_.has_value()) return;
    const std::span<const int32_t> path = window.Last(window.size());
    for (size_t i = path.size() - num_new; i < path.size(); ++i) {
      const SuffixCursor before = cursor_;
      const bool found = Follow(reader.tree(), path.first(i + 1));
      if (before.depth > 0) confidence_.Record(before.depth, before.count, found);
    }
    return;
  }
  if (version_ == 0 || appends_since_search_ >= kAppendsPerSearch) {
    Search(reader, window, window.size());
    appends_since_search_ = 0;
  } else {
    Search(reader, window, cursor_.depth + num_new);
  }
}

const SuffixCursor& SharedSuffixMatch::Get(const SuffixMemory::Reader& reader, const TokenWindow& window) {
  if (version_ != reader.version()) Search(reader, window, cursor_.depth);
  return cursor_;
}

}  // namespace foretoken::proposer
