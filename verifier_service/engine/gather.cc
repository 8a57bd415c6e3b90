// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/gather.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/fixed_array.h"

namespace foretoken::verifier {
namespace {

// Asks one of the engine's own proposers, which are never late.
template <typename Follower>
void AskOwn(size_t proposer_idx, std::optional<Follower>& follower, Sequence& sequence) {
  if (!follower.has_value()) return;
  speculation::TokenTree tree = follower->Guess(sequence.active->max_tree_nodes, 1u << proposer_idx);
  tree.position = static_cast<uint64_t>(sequence.size());
  sequence.guesses[proposer_idx] = std::move(tree);
}

// The trees that have nodes at the sequence's position.
std::vector<const speculation::TokenTree*> CurrentTrees(Sequence& sequence) {
  AskOwn(sequence.guesses.size() - 2, sequence.follower, sequence);
  AskOwn(sequence.guesses.size() - 1, sequence.grammar, sequence);
  std::vector<const speculation::TokenTree*> trees;
  for (std::optional<speculation::TokenTree>& guess : sequence.guesses) {
    if (!guess.has_value()) continue;
    if (guess->position < static_cast<uint64_t>(sequence.size())) {
      guess = speculation::ReRoot(*guess, std::span<const int32_t>(sequence.token_ids).subspan(guess->position));
    }
    if (guess->num_nodes() > 0) trees.push_back(&*guess);
  }
  return trees;
}

const speculation::TokenTree* MergedGuess(Sequence& sequence) {
  const std::vector<const speculation::TokenTree*> trees = CurrentTrees(sequence);
  if (trees.empty()) return nullptr;
  const speculation::TokenTree* merged = trees.front();  // a valid tree is a trie, so one tree needs no merge
  if (trees.size() > 1) {
    std::vector<speculation::TokenTree> copies;
    copies.reserve(trees.size());
    for (const speculation::TokenTree* tree : trees) copies.push_back(*tree);
    sequence.merged_guess = speculation::Merge(copies);
    merged = &sequence.merged_guess;
  }
  const int32_t max_depth = MaxGuessDepth(sequence);
  if (merged->num_nodes() > max_depth && Depth(*merged) > max_depth) {
    sequence.merged_guess = speculation::CutDepth(*merged, max_depth);
    merged = &sequence.merged_guess;
  }
  // Under rejection sampling the forbidden nodes stay: a test that always rejects them keeps the others exact.
  if (sequence.grammar.has_value() && sequence.request().verification == kernels::VerificationRule::kKeyedDraw) {
    const std::vector<int32_t> allowed = sequence.grammar->AllowedNodes(*merged);
    if (std::ssize(allowed) < merged->num_nodes()) {
      sequence.merged_guess = speculation::Keep(*merged, allowed);
      merged = &sequence.merged_guess;
    }
  }
  return merged->num_nodes() > 0 ? merged : nullptr;
}

}  // namespace

std::vector<Guess> MergeGuesses(std::span<const std::unique_ptr<Sequence>> running) {
  std::vector<Guess> guesses;
  guesses.reserve(running.size());
  for (const auto& sequence : running) {
    if (!sequence->decodes() || sequence->sits_out) continue;
    guesses.push_back({.sequence = sequence.get(), .tree = sequence->is_open ? MergedGuess(*sequence) : nullptr});
  }
  return guesses;
}

int32_t Depth(const speculation::TokenTree& tree) {
  absl::FixedArray<int32_t, 64> depths(tree.nodes.size());
  int32_t deepest = 0;
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    const int32_t parent = tree.nodes[node].parent;
    depths[node] = parent == speculation::kRootParent ? 1 : depths[parent] + 1;
    deepest = std::max(deepest, depths[node]);
  }
  return deepest;
}

int32_t MaxGuessDepth(const Sequence& sequence) {
  return sequence.request().stop.max_tokens - sequence.num_generated() - 1;
}

}  // namespace foretoken::verifier
