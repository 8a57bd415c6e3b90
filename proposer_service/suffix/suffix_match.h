// SPDX-License-Identifier: Apache-2.0
// Where a sequence's end, as much of it as occurs there, stands in a suffix tree, and what such matches have proved
// worth.
#pragma once

#include <optional>
#include <utility>

#include "common/speculation/match_confidence.h"
#include "proposer_service/suffix/suffix_memory.h"
#include "proposer_service/suffix/suffix_tree.h"

namespace foretoken::proposer {

// A string that occurs once is worth less than one that is seen again and again, so they are told apart.
class SuffixConfidence {
 public:
  void Record(int32_t length, uint32_t count, bool found) { Of(count).Record(length, found); }
  float Estimate(int32_t length, uint32_t count) const { return by_count_[count > 1].Estimate(length); }

 private:
  speculation::MatchConfidence& Of(uint32_t count) { return by_count_[count > 1]; }

  std::array<speculation::MatchConfidence, 2> by_count_;
};

// The match in the memory of finished outputs. It follows the sequence token by token. When the memory has changed it
// is found again from the root, by as many tokens as it had, and once kAppendsPerSearch tokens have come by as many as
// are told apart: what was learned meanwhile may agree for longer.
class SharedSuffixMatch {
 public:
  SharedSuffixMatch(const SuffixMemory& memory, SuffixOwner owner) : memory_(memory), owner_(std::move(owner)) {}

  // The sequence has gone on by num_new tokens, with which `window` ends. It holds more than max_depth tokens, if there
  // are so many.
  void Advance(const TokenWindow& window, size_t num_new);

  // Brings the match up to the memory as it is, which the reader keeps so.
  const SuffixCursor& Get(const SuffixMemory::Reader& reader, const TokenWindow& window);
  const SuffixConfidence& confidence() const { return confidence_; }

 private:
  static constexpr int32_t kAppendsPerSearch = 16;

  // The match after one more token, the last of `path`. False: the token was not among its continuations.
  bool Follow(const SuffixTree& tree, std::span<const int32_t> path);
  void Search(const SuffixMemory::Reader& reader, const TokenWindow& window, size_t num_tokens);

  const SuffixMemory& memory_;
  const SuffixOwner owner_;
  std::optional<NodeIdx> root_;
  SuffixCursor cursor_;
  uint64_t version_ = 0;              // of the memory when the cursor was good
  bool is_searched_in_part_ = false;  // the last search went only as far as the match before it
  int32_t appends_since_search_ = 0;  // since the last whole one
  SuffixConfidence confidence_;
};

}  // namespace foretoken::proposer
