// SPDX-License-Identifier: Apache-2.0
// The match of a sequence's end in a suffix tree, and the confidence in such matches.
#pragma once

#include <optional>
#include <utility>

#include "common/speculation/allowed_tokens.h"
#include "common/speculation/match_confidence.h"
#include "proposer_service/suffix/suffix_memory.h"
#include "proposer_service/suffix/suffix_tree.h"

namespace foretoken::proposer {

// The confidence in matches. Strings that occur once have a confidence of their own, because they are worth less than
// strings that occur again and again.
class SuffixConfidence {
 public:
  void Record(int32_t length, uint32_t count, bool found) { Of(count).Record(length, found); }
  float Estimate(int32_t length, uint32_t count) const { return by_count_[count > 1].Estimate(length); }

 private:
  speculation::MatchConfidence& Of(uint32_t count) { return by_count_[count > 1]; }

  std::array<speculation::MatchConfidence, 2> by_count_;
};

// The sequence and the tokens that may come next.
struct AllowedEnd {
  NodeIdx root = kNoNode;  // of the match
  const TokenWindow& window;
  const speculation::AllowedTokens& allowed;
};

// The longest end of `match` that an allowed token or the end of a text follows. Depth 0: there is none.
SuffixCursor LongestAllowed(const SuffixTree& tree, SuffixCursor match, const AllowedEnd& end);

// The match of a sequence's end in the memory of finished outputs. It follows the sequence token by token. When the
// memory has changed, the match is searched again from the root with as many tokens as it had. After every
// kAppendsPerSearch tokens it is searched with max_depth tokens, because a new output may have a longer match.
class SharedSuffixMatch {
 public:
  SharedSuffixMatch(const SuffixMemory& memory, SuffixOwner owner) : memory_(memory), owner_(std::move(owner)) {}

  // The sequence has grown by num_new tokens, the last tokens of `window`. The window holds more than max_depth tokens
  // if the sequence has that many.
  void Advance(const TokenWindow& window, size_t num_new);

  // Updates the match to the reader's state of the memory and returns it.
  const SuffixCursor& Get(const SuffixMemory::Reader& reader, const TokenWindow& window);
  const SuffixConfidence& confidence() const { return confidence_; }
  // Of the owner's texts; unset: there are none. Get updates it.
  std::optional<NodeIdx> root() const { return root_; }

 private:
  static constexpr int32_t kAppendsPerSearch = 16;

  // Appends the last token of `path` to the match. False: the token was not among the match's continuations.
  bool Follow(const SuffixTree& tree, std::span<const int32_t> path);
  void Search(const SuffixMemory::Reader& reader, const TokenWindow& window, size_t num_tokens);

  const SuffixMemory& memory_;
  const SuffixOwner owner_;
  std::optional<NodeIdx> root_;
  SuffixCursor cursor_;
  uint64_t version_ = 0;              // of the memory, when the cursor was valid
  bool is_searched_in_part_ = false;  // the last search used only as many tokens as the match before it
  int32_t appends_since_search_ = 0;  // since the last search with max_depth tokens
  SuffixConfidence confidence_;
};

}  // namespace foretoken::proposer
