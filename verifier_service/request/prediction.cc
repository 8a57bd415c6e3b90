// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/request/prediction.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <utility>

namespace foretoken::verifier {
namespace {

using speculation::kRootParent;
using speculation::TokenTree;

// The window of the search for single tokens, on either side of the place of the deviation.
constexpr int32_t kWindow = 64;
// The most places with the same anchor that are considered on either side of home, the nearest first.
constexpr int32_t kMaxAnchorsPerSide = 8;
constexpr size_t kMaxFound = 2;
constexpr int32_t kMaxAgreeing = speculation::MatchConfidence::kMaxLength;
// A prediction begins the output by contract. That counts as this many agreeing tokens.
constexpr int32_t kAgreeingAtStart = 8;
// The follower keeps guessed alignments until the output is this many tokens away from the prediction.
constexpr int32_t kMaxStrayedToGuess = 8;
constexpr float kChanceOfGuess = 0.2f;
// Less likely guesses cost more than they gain.
constexpr float kMinPathChance = 0.01f;
constexpr float kMaxChance = 0.999f;

uint64_t AnchorHash(const int32_t* token_ids) {
  uint64_t hash = 0;
  for (int32_t i = 0; i < Prediction::kAnchorLength; ++i) {
    hash = (hash ^ static_cast<uint32_t>(token_ids[i])) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  return hash & 0xFFFFFFFF00000000ull;
}

int32_t IndexBehind(uint64_t anchor) { return static_cast<int32_t>(anchor & 0xFFFFFFFF); }

}  // namespace

Prediction::Prediction(std::vector<int32_t> token_ids, int32_t max_tokens)
    : num_tokens_(static_cast<int64_t>(token_ids.size())), token_ids_(std::move(token_ids)) {
  if (token_ids_.size() > static_cast<size_t>(max_tokens)) {
    token_ids_.resize(static_cast<size_t>(max_tokens));
    token_ids_.shrink_to_fit();
  }
  for (size_t next = kAnchorLength; next < token_ids_.size(); ++next) {
    anchors_.push_back(AnchorHash(&token_ids_[next - kAnchorLength]) | next);
  }
  std::sort(anchors_.begin(), anchors_.end());
}

std::span<const uint64_t> Prediction::Anchors(std::span<const int32_t> output) const {
  if (output.size() < kAnchorLength) return {};
  const uint64_t hash = AnchorHash(&output[output.size() - kAnchorLength]);
  const auto begin = std::lower_bound(anchors_.begin(), anchors_.end(), hash);
  const auto end = std::upper_bound(begin, anchors_.end(), hash | std::numeric_limits<uint32_t>::max());
  return {begin, end};
}

PredictionFollower::PredictionFollower(const Prediction& prediction)
    : prediction_(prediction), is_accepted_(prediction.token_ids().size()) {
  if (!prediction.empty()) alignments_.push_back({.next = 0, .num_agreeing = kAgreeingAtStart});
}

void PredictionFollower::Append(std::span<const int32_t> output) {
  Alignments moved = MovedOn(output.back());
  if (!moved.empty() && moved.front().num_agreeing >= Prediction::kAnchorLength) {
    home_ = moved.front().next;
    num_strayed_ = 0;
  } else {
    ++num_strayed_;
  }
  const auto is_at_end = [this](const Alignment& alignment) { return alignment.next == size(); };
  moved.erase(std::remove_if(moved.begin(), moved.end(), is_at_end), moved.end());
  if (moved.empty()) {
    moved = Found(output);
    AddGuesses(&moved);
  }
  alignments_ = std::move(moved);
}

// Returns the alignments that predicted the token, moved behind it. Records whether the best alignment was right.
PredictionFollower::Alignments PredictionFollower::MovedOn(int32_t token_id) {
  const std::span<const int32_t> predicted = prediction_.token_ids();
  Alignments moved;
  for (const Alignment& alignment : alignments_) {
    if (predicted[alignment.next] != token_id) continue;
    if (moved.empty() && !is_accepted_[alignment.next]) {
      is_accepted_[alignment.next] = true;
      ++num_accepted_;
    }
    moved.push_back(alignment);
    ++moved.back().next;
    moved.back().num_agreeing = std::min(alignment.num_agreeing + 1, kMaxAgreeing);
  }
  if (!alignments_.empty() && alignments_.front().num_agreeing > 0) {
    const Alignment& best = alignments_.front();
    confidence_.Record(best.num_agreeing, predicted[best.next] == token_id);
  }
  const auto proven_guess = std::find_if(moved.begin(), moved.end(), [](const Alignment& alignment) {
    return alignment.is_guess && alignment.num_agreeing >= Prediction::kAnchorLength;
  });
  if (proven_guess != moved.end()) moved = {*proven_guess};
  return moved;
}

// Returns the places of the longest suffixes of the output in the prediction, except at its end.
PredictionFollower::Alignments PredictionFollower::Found(std::span<const int32_t> output) const {
  const int32_t first = std::max(1, home_ - kWindow);
  const int32_t last = std::min(size() - 1, home_ + kWindow);
  Alignments best;
  for (int32_t next = first; next <= last; ++next) Consider(next, output, &best);

  const std::span<const uint64_t> anchors = prediction_.Anchors(output);
  const auto is_before = [](uint64_t anchor, int32_t next) { return IndexBehind(anchor) < next; };
  const auto before = std::lower_bound(anchors.begin(), anchors.end(), first, is_before);
  const auto behind = std::lower_bound(before, anchors.end(), last + 1, is_before);
  const auto num_before = std::min<std::ptrdiff_t>(kMaxAnchorsPerSide, before - anchors.begin());
  const auto num_behind = std::min<std::ptrdiff_t>(kMaxAnchorsPerSide, anchors.end() - behind);
  for (auto anchor = before - num_before; anchor != before; ++anchor) Consider(IndexBehind(*anchor), output, &best);
  for (auto anchor = behind; anchor != behind + num_behind; ++anchor) Consider(IndexBehind(*anchor), output, &best);
  return best;
}

// Adds the place to the best ones if the output's last token stands before it.
void PredictionFollower::Consider(int32_t next, std::span<const int32_t> output, Alignments* best) const {
  const std::span<const int32_t> predicted = prediction_.token_ids();
  const int32_t limit = std::min({next, static_cast<int32_t>(output.size()), kMaxAgreeing});
  int32_t num_agreeing = 0;
  while (num_agreeing < limit && predicted[next - 1 - num_agreeing] == output[output.size() - 1 - num_agreeing]) {
    ++num_agreeing;
  }
  if (num_agreeing == 0) return;
  const auto is_better = [this](const Alignment& a, const Alignment& b) {
    if (a.num_agreeing != b.num_agreeing) return a.num_agreeing > b.num_agreeing;
    const int32_t distance_a = std::abs(a.next - 1 - home_);  // tokens skipped or repeated
    const int32_t distance_b = std::abs(b.next - 1 - home_);
    return distance_a != distance_b ? distance_a < distance_b : a.next > b.next;
  };
  const Alignment found = {.next = next, .num_agreeing = num_agreeing};
  best->insert(std::upper_bound(best->begin(), best->end(), found, is_better), found);
  if (best->size() > kMaxFound) best->pop_back();
}

void PredictionFollower::AddGuesses(Alignments* best) const {
  if (num_strayed_ == 0 || num_strayed_ > kMaxStrayedToGuess) return;
  for (const int32_t next : {home_ + num_strayed_, home_}) {
    if (next < size()) best->push_back({.next = next, .is_guess = true});
  }
}

float PredictionFollower::Chance(int32_t num_agreeing) const {
  return num_agreeing == 0 ? kChanceOfGuess : std::min(kMaxChance, confidence_.Estimate(num_agreeing));
}

TokenTree PredictionFollower::Guess(int32_t max_nodes, uint32_t proposers) const {
  TokenTree tree;
  for (const Alignment& alignment : alignments_) AddChain(alignment, max_nodes, &tree);
  for (speculation::TreeNode& node : tree.nodes) node.proposers = proposers;
  return tree.num_nodes() > max_nodes ? speculation::BestNodes(tree, max_nodes) : tree;
}

// Adds the tokens behind an alignment to the tree. Reuses existing nodes as far as they agree.
void PredictionFollower::AddChain(const Alignment& alignment, int32_t max_nodes, TokenTree* tree) const {
  const std::span<const int32_t> predicted = prediction_.token_ids().subspan(alignment.next);
  const int32_t num_old_nodes = tree->num_nodes();
  const int32_t length = std::min(max_nodes, static_cast<int32_t>(predicted.size()));
  int32_t parent = kRootParent;
  float path_chance = 1;
  for (int32_t i = 0; i < length; ++i) {
    float chance_left = 1;
    int32_t node = num_old_nodes;
    if (parent < num_old_nodes) {
      for (node = parent + 1; node < num_old_nodes; ++node) {
        if (tree->nodes[node].parent != parent) continue;
        if (tree->nodes[node].token_id == predicted[i]) break;
        chance_left -= tree->nodes[node].chance;
      }
    }
    if (node == num_old_nodes) {
      const float chance = chance_left * Chance(std::min(alignment.num_agreeing + i, kMaxAgreeing));
      if (path_chance * chance < kMinPathChance) return;
      node = tree->Append({.token_id = predicted[i], .parent = parent, .chance = chance});
    }
    path_chance *= tree->nodes[node].chance;
    parent = node;
  }
}

}  // namespace foretoken::verifier
