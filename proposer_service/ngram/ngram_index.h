// SPDX-License-Identifier: Apache-2.0
// An index of the earlier occurrences of a sequence's last n tokens, for every n in [min_length, max_length].
//
// For each length a table maps the hash of an n-gram to its latest occurrence, and every occurrence links to the one
// before. Two n-grams may share a table slot, so Find compares an occurrence's tokens before it counts.
//
// Cost: appending is O(max_length), amortised over the growth of the tables. Tables and arrays double, so the index
// takes at most 8 + 16 * num_lengths bytes per token.
// Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/speculation/allowed_tokens.h"

namespace foretoken::proposer {

// The index of a token in the sequence.
using TokenIndex = int32_t;

class NgramIndex {
 public:
  // 1 <= min_length <= max_length <= kMaxLength.
  NgramIndex(int32_t min_length, int32_t max_length);

  static constexpr int32_t kMaxLength = 32;

  // The tokens whose end Find looks for, with the hashes of the n-grams at the end. It views the tokens.
  struct Tail {
    std::span<const int32_t> tokens;
    std::array<uint64_t, kMaxLength> hashes;  // of the last 1, 2, ... tokens
  };
  Tail MakeTail(std::span<const int32_t> tokens) const;

  void Append(int32_t token_id);

  // Fills `found` with the latest occurrences of the tail's last `length` tokens, latest first, and returns their
  // number. An occurrence is the index of the token *after* the n-gram, so the n-gram at the sequence's end is no
  // occurrence. The tail need not be in the sequence. min_length <= length <= max_length, length <= tail.tokens.size().
  // Occurrences whose next token is not allowed do not count.
  int32_t Find(const Tail& tail, int32_t length, std::span<TokenIndex> found,
               const speculation::AllowedTokens& allowed = {}) const;

  std::span<const int32_t> tokens() const { return tokens_; }
  int32_t min_length() const { return min_length_; }
  int32_t max_length() const { return max_length_; }

 private:
  void Grow();
  void Link(TokenIndex end);
  // The index in latest_ for an n-gram of this length and hash.
  size_t Slot(int32_t length, uint64_t hash) const;

  int32_t min_length_;
  int32_t max_length_;
  int32_t num_lengths_;
  uint32_t slot_bits_;
  std::vector<int32_t> tokens_;
  // Both hold the index of the token after an n-gram. 0 means none, because no n-gram ends before index 1.
  std::vector<uint32_t> latest_;  // [num_lengths, 2^slot_bits]
  // [tokens, num_lengths] For an n-gram that ends with this token: its previous occurrence.
  std::vector<uint32_t> previous_;
};

}  // namespace foretoken::proposer
