// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/ngram/ngram_session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proposer_service/proposer/frontier.h"

namespace foretoken::proposer {
namespace {

using speculation::AllowedTokens;
using speculation::kRootParent;
using speculation::TokenTree;

// The factor on an occurrence's weight for each later occurrence.
constexpr float kRecency = 0.8f;
// The weight of a continuation's first occurrence. Further occurrences weigh 1. Most continuations that occur once
// never occur again.
constexpr float kFirstOccurrence = 0.15f;
// The tree has no nodes of lower path chance, because they cost the verifier more than they gain.
constexpr float kMinPathChance = 0.01f;
constexpr float kMaxChance = 0.999f;
constexpr int32_t kMaxChildren = 4;

// The number of equal tokens before an occurrence and at the end of the tail.
int32_t AgreeingTokens(std::span<const int32_t> tokens, TokenIndex next, std::span<const int32_t> tail) {
  const int32_t limit = std::min({next, static_cast<int32_t>(tail.size()), NgramMatch::kMaxLength});
  int32_t length = 0;
  while (length < limit && tokens[next - 1 - length] == tail[tail.size() - 1 - length]) ++length;
  return length;
}

// The longest indexed match of the tail's end that an allowed token follows. It leaves out occurrences with less than
// half as many equal tokens as the best occurrence; a shorter match has them.
NgramMatch LongestMatch(const NgramIndex& index, const NgramIndex::Tail& tail, const AllowedTokens& allowed = {}) {
  NgramMatch match;
  int32_t length = std::min<int32_t>(index.max_length(), static_cast<int32_t>(tail.tokens.size()));
  for (; length >= index.min_length(); --length) {
    match.num_occurrences = index.Find(tail, length, match.next, allowed);
    if (match.num_occurrences > 0) break;
  }
  std::array<int32_t, NgramMatch::kMaxOccurrences> lengths;
  for (int32_t i = 0; i < match.num_occurrences; ++i) {
    lengths[i] = length < index.max_length() ? length : AgreeingTokens(index.tokens(), match.next[i], tail.tokens);
    match.length = std::max(match.length, lengths[i]);
  }
  int32_t num_kept = 0;
  for (int32_t i = 0; i < match.num_occurrences; ++i) {
    if (2 * lengths[i] > match.length) match.next[num_kept++] = match.next[i];
  }
  match.num_occurrences = num_kept;
  return match;
}

// The match after one more token. It keeps the occurrences that continue with the token and have not reached the
// sequence's end.
NgramMatch Advance(const NgramMatch& match, std::span<const int32_t> tokens, int32_t token_id) {
  NgramMatch advanced;
  advanced.length = std::min(match.length + 1, NgramMatch::kMaxLength);
  for (int32_t i = 0; i < match.num_occurrences; ++i) {
    const TokenIndex next = match.next[i];
    if (tokens[next] == token_id && next + 1 < tokens.size()) advanced.next[advanced.num_occurrences++] = next + 1;
  }
  return advanced;
}

// The occurrences of the match that an allowed token follows.
NgramMatch Restricted(NgramMatch match, std::span<const int32_t> tokens, const AllowedTokens& allowed) {
  const auto end = std::remove_if(match.next.begin(), match.next.begin() + match.num_occurrences,
                                  [&](TokenIndex next) { return !allowed.Allows(tokens[next]); });
  match.num_occurrences = static_cast<int32_t>(end - match.next.begin());
  return match;
}

bool IsContinuation(const NgramMatch& match, std::span<const int32_t> tokens, int32_t token_id) {
  return std::any_of(match.next.begin(), match.next.begin() + match.num_occurrences,
                     [&](TokenIndex next) { return tokens[next] == token_id; });
}

// Grows one tree, best path chance first.
class TreeGrower {
 public:
  // The children of the root are among the allowed tokens.
  TreeGrower(const NgramIndex& index, const speculation::MatchConfidence& confidence, const AllowedTokens& allowed,
             int32_t node_budget)
      : index_(index), confidence_(confidence), allowed_(allowed), frontier_(node_budget, kMinPathChance) {
    tree_.position = index.tokens().size();
    tree_.nodes.reserve(node_budget);
    matches_.reserve(2 * node_budget);
  }

  TokenTree Grow(const NgramMatch& root_match) {
    if (frontier_.nodes_left() == 0) return std::move(tree_);
    Expand({.node_idx = kRootParent, .path_chance = 1}, Restricted(root_match, index_.tokens(), allowed_));
    while (!frontier_.empty()) {
      const Candidate best = frontier_.Take();
      tree_.Append({.token_id = best.token_id, .parent = best.parent, .chance = best.chance});
      if (frontier_.nodes_left() == 0) break;
      Expand({.node_idx = tree_.num_nodes() - 1, .path_chance = best.path_chance},
             Advance(matches_[best.match_idx], index_.tokens(), best.token_id));
    }
    return std::move(tree_);
  }

 private:
  // A node that may join the tree.
  struct Candidate {
    float path_chance = 0;
    float chance = 0;
    int32_t parent = kRootParent;
    int32_t token_id = 0;
    int32_t match_idx = 0;  // the index in matches_ of the match that proposed it
  };

  // A node while its children are collected.
  struct Expansion {
    int32_t node_idx = kRootParent;
    float path_chance = 1;
    float chance_left = 1;  // that the next token is no child found so far
    int32_t num_children = 0;
    std::array<int32_t, kMaxChildren> children = {};
  };

  // Offers a node's children to the frontier: the continuations of its match, then those of shorter matches.
  void Expand(Expansion node, const NgramMatch& match) {
    std::array<int32_t, NgramMatch::kMaxLength> tail_buffer;
    std::optional<NgramIndex::Tail> tail;
    const AllowedTokens allowed = node.node_idx == kRootParent ? allowed_ : AllowedTokens();
    if (match.num_occurrences > 0) {
      matches_.push_back(match);
    } else {
      tail = TailOf(node.node_idx, tail_buffer);
      matches_.push_back(LongestMatch(index_, *tail, allowed));
      if (matches_.back().num_occurrences == 0) return;
    }
    AddChildren(node);
    // Each match is half as long as the last, because most matches in between have the same continuations.
    while (matches_.back().length > index_.min_length()) {
      const int32_t length = std::clamp((matches_.back().length + 1) / 2, index_.min_length(), index_.max_length());
      if (node.path_chance * node.chance_left * confidence_.Estimate(length) <= frontier_.WorthAdding()) break;
      if (node.num_children == kMaxChildren) break;
      if (!tail.has_value()) tail = TailOf(node.node_idx, std::span(tail_buffer).first(index_.max_length()));
      NgramMatch& shorter = matches_.emplace_back();
      shorter.length = length;
      shorter.num_occurrences = index_.Find(*tail, length, shorter.next, allowed);
      AddChildren(node);
    }
  }

  // Offers the continuations of the last match that are not yet among the node's children.
  void AddChildren(Expansion& node) {
    const NgramMatch& match = matches_.back();
    const int32_t first_new = node.num_children;
    std::array<float, kMaxChildren> weights;
    float weight = 1;
    float sum = 0;
    for (int32_t i = 0; i < match.num_occurrences; ++i, weight *= kRecency) {
      const int32_t token_id = index_.tokens()[match.next[i]];
      int32_t child = 0;
      while (child < node.num_children && node.children[child] != token_id) ++child;
      if (child < first_new) continue;
      const bool is_first = child == node.num_children;
      const float evidence = is_first ? weight * kFirstOccurrence : weight;
      sum += evidence;
      if (!is_first) {
        weights[child] += evidence;
      } else if (child < kMaxChildren) {
        weights[child] = evidence;
        node.children[node.num_children++] = token_id;
      }
    }
    if (sum == 0) return;
    const float confidence = confidence_.Estimate(match.length);
    for (int32_t child = first_new; child < node.num_children; ++child) {
      const float chance = std::min(kMaxChance, node.chance_left * confidence * weights[child] / sum);
      frontier_.Offer({.path_chance = node.path_chance * chance,
                       .chance = chance,
                       .parent = node.node_idx,
                       .token_id = node.children[child],
                       .match_idx = static_cast<int32_t>(matches_.size()) - 1});
    }
    node.chance_left *= 1 - confidence;
  }

  // The end of the sequence and the path to a node, as many tokens as the buffer holds.
  NgramIndex::Tail TailOf(int32_t node_idx, std::span<int32_t> buffer) const {
    size_t begin = buffer.size();
    for (; node_idx != kRootParent && begin > 0; node_idx = tree_.nodes[node_idx].parent) {
      buffer[--begin] = tree_.nodes[node_idx].token_id;
    }
    const std::span<const int32_t> tokens = index_.tokens();
    for (size_t end = tokens.size(); end > 0 && begin > 0; --end) buffer[--begin] = tokens[end - 1];
    return index_.MakeTail(buffer.subspan(begin));
  }

  const NgramIndex& index_;
  const speculation::MatchConfidence& confidence_;
  const AllowedTokens& allowed_;
  TokenTree tree_;
  std::vector<NgramMatch> matches_;
  Frontier<Candidate> frontier_;
};

}  // namespace

void NgramSession::Append(std::span<const int32_t> token_ids) {
  if (!token_ids.empty()) allowed_ = {};
  for (const int32_t token_id : token_ids) {
    if (match_.num_occurrences > 0) {
      confidence_.Record(match_.length, IsContinuation(match_, index_.tokens(), token_id));
    }
    index_.Append(token_id);
    // The index finds matches of max_length at most. A longer match is found only by following it.
    match_ = Advance(match_, index_.tokens(), token_id);
    if (match_.num_occurrences == 0 || match_.length <= index_.max_length()) {
      match_ = LongestMatch(index_, index_.MakeTail(index_.tokens()));
    }
  }
}

TokenTree NgramSession::Propose(int32_t node_budget) const {
  return TreeGrower(index_, confidence_, allowed_, node_budget).Grow(match_);
}

}  // namespace foretoken::proposer
