// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/ngram_session.h"

#include <algorithm>
#include <bit>

namespace foretoken::proposer {
namespace {

using speculation::kRootParent;
using speculation::TokenTree;

// The weight of an occurrence, per occurrence that is later.
constexpr float kRecency = 0.8f;
// Guesses that are reached more rarely than this cost their receiver more than they bring.
constexpr float kMinPathChance = 0.01f;
constexpr float kMaxChance = 0.999f;
constexpr int32_t kMaxChildren = 4;
// A prior as strong as so many trials; older trials fade so that about the last kMemoryTrials count.
constexpr float kPriorTrials = 8;
constexpr float kMemoryTrials = 128;
// A match of n tokens is right with prior odds of n times this.
constexpr float kPriorOddsPerToken = 0.6f;

// How many tokens agree before an occurrence and at the end of the tail.
int32_t AgreeingTokens(std::span<const int32_t> tokens, TokenIndex next, std::span<const int32_t> tail) {
  const int32_t limit = std::min<int32_t>(next, static_cast<int32_t>(tail.size()));
  int32_t length = 0;
  while (length < limit && tokens[next - 1 - length] == tail[tail.size() - 1 - length]) ++length;
  return length;
}

// The longest indexed match of the tail's end. Occurrences that agree for less than half of the best one's length are
// another, shorter match's.
NgramMatch LongestMatch(const NgramIndex& index, std::span<const int32_t> tail) {
  NgramMatch match;
  int32_t length = std::min<int32_t>(index.max_length(), static_cast<int32_t>(tail.size()));
  for (; length >= index.min_length(); --length) {
    match.num_occurrences = index.Find(tail, length, match.next);
    if (match.num_occurrences > 0) break;
  }
  std::array<int32_t, NgramMatch::kMaxOccurrences> lengths;
  for (int32_t i = 0; i < match.num_occurrences; ++i) {
    lengths[i] = length < index.max_length() ? length : AgreeingTokens(index.tokens(), match.next[i], tail);
    match.length = std::max(match.length, lengths[i]);
  }
  int32_t num_kept = 0;
  for (int32_t i = 0; i < match.num_occurrences; ++i) {
    if (2 * lengths[i] > match.length) match.next[num_kept++] = match.next[i];
  }
  match.num_occurrences = num_kept;
  return match;
}

// The match after one more token: the occurrences that go on with it, and have not reached the sequence's end.
NgramMatch Advance(const NgramMatch& match, std::span<const int32_t> tokens, int32_t token_id) {
  NgramMatch advanced;
  advanced.length = std::min(match.length + 1, NgramMatch::kMaxLength);
  for (int32_t i = 0; i < match.num_occurrences; ++i) {
    const TokenIndex next = match.next[i];
    if (tokens[next] == token_id && next + 1 < tokens.size()) advanced.next[advanced.num_occurrences++] = next + 1;
  }
  return advanced;
}

bool IsContinuation(const NgramMatch& match, std::span<const int32_t> tokens, int32_t token_id) {
  return std::any_of(match.next.begin(), match.next.begin() + match.num_occurrences,
                     [&](TokenIndex next) { return tokens[next] == token_id; });
}

// The last tokens of the sequence, as many as matches are told apart by.
std::span<const int32_t> Tail(std::span<const int32_t> tokens) {
  return tokens.last(std::min<size_t>(tokens.size(), NgramMatch::kMaxLength));
}

// A node that may join the tree.
struct Candidate {
  float path_chance = 0;
  float chance = 0;
  int32_t parent = kRootParent;
  int32_t token_id = 0;
  NgramMatch match = {};  // behind the token; empty where the match that suggested it ends with the sequence
};

// Grows one tree, best path chance first.
class TreeGrower {
 public:
  TreeGrower(const NgramIndex& index, const MatchConfidence& confidence) : index_(index), confidence_(confidence) {}

  TokenTree Grow(const NgramMatch& root_match, int32_t node_budget) {
    tree_.position = index_.tokens().size();
    Expand(kRootParent, 1, root_match);
    while (!heap_.empty() && tree_.num_nodes() < node_budget) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Candidate best = candidates_[heap_.back().candidate_idx];
      heap_.pop_back();
      tree_.token_ids.push_back(best.token_id);
      tree_.parents.push_back(best.parent);
      tree_.chances.push_back(best.chance);
      if (tree_.num_nodes() < node_budget) Expand(tree_.num_nodes() - 1, best.path_chance, best.match);
    }
    return std::move(tree_);
  }

 private:
  struct HeapEntry {
    float path_chance = 0;
    int32_t candidate_idx = 0;
    // Equal chances: whoever came first, so that the tree is a function of the tokens.
    bool operator<(const HeapEntry& other) const {
      return path_chance != other.path_chance ? path_chance < other.path_chance : candidate_idx > other.candidate_idx;
    }
  };

  // Makes a node's children candidates: what follows its match, then what follows shorter ones.
  void Expand(int32_t node_idx, float path_chance, const NgramMatch& match) {
    const size_t first_child = candidates_.size();
    float chance_left = 1;
    std::array<int32_t, NgramMatch::kMaxLength> tail_buffer;
    std::span<const int32_t> tail;
    NgramMatch shorter = match;
    if (match.num_occurrences == 0) {
      tail = TailOf(node_idx, tail_buffer);
      shorter = LongestMatch(index_, tail);
      if (shorter.num_occurrences == 0) return;
    }
    AddChildren(node_idx, path_chance, chance_left, shorter, first_child);
    for (int32_t length = std::min(shorter.length - 1, index_.max_length()); length >= index_.min_length(); --length) {
      if (path_chance * chance_left * confidence_.Estimate(length) < kMinPathChance) break;
      if (candidates_.size() - first_child >= kMaxChildren) break;
      if (tail.empty()) tail = TailOf(node_idx, tail_buffer);
      shorter.length = length;
      shorter.num_occurrences = index_.Find(tail, length, shorter.next);
      AddChildren(node_idx, path_chance, chance_left, shorter, first_child);
    }
  }

  // Adds the continuations that are not among the node's children yet, and takes their chance from what is left.
  void AddChildren(int32_t node_idx, float path_chance, float& chance_left, const NgramMatch& match,
                   size_t first_child) {
    const std::span<const int32_t> tokens = index_.tokens();
    const size_t first_new = candidates_.size();
    float weight = 1;
    float sum = 0;
    for (int32_t i = 0; i < match.num_occurrences; ++i, weight *= kRecency) {
      const int32_t token_id = tokens[match.next[i]];
      size_t child = first_child;
      while (child < candidates_.size() && candidates_[child].token_id != token_id) ++child;
      if (child < first_new) continue;
      sum += weight;
      if (child < candidates_.size()) {
        candidates_[child].chance += weight;
      } else if (child - first_child < kMaxChildren) {
        candidates_.push_back({.chance = weight, .parent = node_idx, .token_id = token_id});
      }
    }
    if (sum == 0) return;
    const float confidence = confidence_.Estimate(match.length);
    for (size_t child = first_new; child < candidates_.size(); ++child) {
      Candidate& candidate = candidates_[child];
      candidate.chance = std::min(kMaxChance, chance_left * confidence * candidate.chance / sum);
      candidate.path_chance = path_chance * candidate.chance;
      if (candidate.path_chance < kMinPathChance) continue;
      candidate.match = Advance(match, tokens, candidate.token_id);
      heap_.push_back({candidate.path_chance, static_cast<int32_t>(child)});
      std::push_heap(heap_.begin(), heap_.end());
    }
    chance_left *= 1 - confidence;
  }

  // The last tokens of the sequence followed by the path to a node.
  std::span<const int32_t> TailOf(int32_t node_idx, std::array<int32_t, NgramMatch::kMaxLength>& buffer) const {
    size_t begin = buffer.size();
    for (; node_idx != kRootParent && begin > 0; node_idx = tree_.parents[node_idx]) {
      buffer[--begin] = tree_.token_ids[node_idx];
    }
    const std::span<const int32_t> tokens = index_.tokens();
    for (size_t end = tokens.size(); end > 0 && begin > 0; --end) buffer[--begin] = tokens[end - 1];
    return std::span(buffer).subspan(begin);
  }

  const NgramIndex& index_;
  const MatchConfidence& confidence_;
  TokenTree tree_;
  std::vector<Candidate> candidates_;
  std::vector<HeapEntry> heap_;
};

}  // namespace

void MatchConfidence::Record(int32_t length, bool found) {
  Trials& trials = trials_[Bucket(length)];
  if (trials.num_trials >= kMemoryTrials) {
    trials.num_trials /= 2;
    trials.num_found /= 2;
  }
  trials.num_trials += 1;
  trials.num_found += found;
}

float MatchConfidence::Estimate(int32_t length) const {
  const Trials& trials = trials_[Bucket(length)];
  const float odds = kPriorOddsPerToken * length;
  return (trials.num_found + kPriorTrials * odds / (1 + odds)) / (trials.num_trials + kPriorTrials);
}

int32_t MatchConfidence::Bucket(int32_t length) {
  if (length <= 8) return length - 1;
  return std::min<int32_t>(kNumBuckets - 1, 4 + std::bit_width(static_cast<uint32_t>(length)));
}

void NgramSession::Append(std::span<const int32_t> token_ids) {
  for (const int32_t token_id : token_ids) {
    if (match_.num_occurrences > 0) {
      confidence_.Record(match_.length, IsContinuation(match_, index_.tokens(), token_id));
    }
    index_.Append(token_id);
    // A match longer than the index tells apart is known only by having been followed.
    match_ = Advance(match_, index_.tokens(), token_id);
    if (match_.num_occurrences == 0 || match_.length <= index_.max_length()) {
      match_ = LongestMatch(index_, Tail(index_.tokens()));
    }
  }
}

TokenTree NgramSession::Propose(int32_t node_budget) const {
  return TreeGrower(index_, confidence_).Grow(match_, node_budget);
}

}  // namespace foretoken::proposer
