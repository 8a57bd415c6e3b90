// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/ngram/ngram_index.h"

#include <algorithm>

#include "kernels/check.h"

namespace foretoken::proposer {
namespace {

constexpr uint32_t kInitialSlotBits = 8;
// The links that one Find follows at most, per occurrence that it may return. The bound holds when n-grams share a
// slot, by chance or by an attacker's choice.
constexpr int32_t kLinksPerOccurrence = 2;

// Extends the hash of an n-gram by the token before it. Hashing backwards lets all lengths share the work.
uint64_t Extend(uint64_t hash, int32_t token_id) {
  hash = (hash ^ static_cast<uint32_t>(token_id)) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

// A loop, because a call of memcmp costs more for short n-grams.
bool SameTokens(const int32_t* a, const int32_t* b, int32_t length) {
  for (int32_t i = 0; i < length; ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

}  // namespace

NgramIndex::NgramIndex(int32_t min_length, int32_t max_length)
    : min_length_(min_length), max_length_(max_length), num_lengths_(max_length - min_length + 1) {
  FT_CHECK(1 <= min_length && min_length <= max_length && max_length <= kMaxLength);
  slot_bits_ = kInitialSlotBits;
  latest_.assign(static_cast<size_t>(num_lengths_) << slot_bits_, 0);
}

size_t NgramIndex::Slot(int32_t length, uint64_t hash) const {
  return (static_cast<size_t>(length - min_length_) << slot_bits_) + (hash >> (64 - slot_bits_));
}

void NgramIndex::Append(int32_t token_id) {
  tokens_.push_back(token_id);
  previous_.resize(tokens_.size() * num_lengths_);
  if (tokens_.size() > (size_t{1} << slot_bits_)) {
    Grow();
  } else {
    Link(static_cast<TokenIndex>(tokens_.size()) - 1);
  }
}

void NgramIndex::Grow() {
  ++slot_bits_;
  latest_.assign(static_cast<size_t>(num_lengths_) << slot_bits_, 0);
  for (size_t end = 0; end < tokens_.size(); ++end) Link(static_cast<TokenIndex>(end));
}

void NgramIndex::Link(TokenIndex end) {
  uint64_t hash = 0;
  uint32_t* previous = &previous_[static_cast<size_t>(end) * num_lengths_];
  const int32_t longest = std::min(max_length_, end + 1);
  for (int32_t length = 1; length <= longest; ++length) {
    hash = Extend(hash, tokens_[end + 1 - length]);
    if (length < min_length_) continue;
    uint32_t& latest = latest_[Slot(length, hash)];
    previous[length - min_length_] = latest;
    latest = static_cast<uint32_t>(end) + 1;
  }
}

NgramIndex::Tail NgramIndex::MakeTail(std::span<const int32_t> tokens) const {
  Tail tail;
  tail.tokens = tokens;
  const int32_t longest = std::min(max_length_, static_cast<int32_t>(tokens.size()));
  uint64_t hash = 0;
  for (int32_t i = 0; i < longest; ++i) tail.hashes[i] = hash = Extend(hash, tokens[tokens.size() - 1 - i]);
  return tail;
}

int32_t NgramIndex::Find(const Tail& tail, int32_t length, std::span<TokenIndex> found,
                         const speculation::AllowedTokens& allowed) const {
  const int32_t* ngram = tail.tokens.data() + tail.tokens.size() - length;
  int32_t num_found = 0;
  int32_t links_left = kLinksPerOccurrence * static_cast<int32_t>(found.size());
  uint32_t next = latest_[Slot(length, tail.hashes[length - 1])];
  for (; next != 0 && links_left > 0 && num_found < found.size(); --links_left) {
    if (next < tokens_.size() && allowed.Allows(tokens_[next]) && SameTokens(&tokens_[next - length], ngram, length)) {
      found[num_found++] = static_cast<TokenIndex>(next);
    }
    next = previous_[static_cast<size_t>(next - 1) * num_lengths_ + (length - min_length_)];
  }
  return num_found;
}

}  // namespace foretoken::proposer
