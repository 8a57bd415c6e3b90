// SPDX-License-Identifier: Apache-2.0
#include "common/speculation/tested_tree.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace foretoken::verifier {
namespace {

using speculation::kRootParent;
using speculation::SampledChildren;
using speculation::TokenTree;

// The places of a guess's nodes among the tested ones; the root's place is 0.
class Places {
 public:
  Places(const TokenTree& guess, std::span<const int32_t> row_node_idx)
      : places_(guess.nodes.size()), num_rows_(static_cast<int32_t>(row_node_idx.size()) + 1) {
    for (size_t i = 0; i < row_node_idx.size(); ++i) places_[row_node_idx[i]] = static_cast<int32_t>(i) + 1;
  }

  std::optional<int32_t> Of(int32_t node_idx) const { return node_idx == kRootParent ? 0 : places_[node_idx]; }
  bool HasRow(int32_t node_idx) const { return Of(node_idx).has_value() && *Of(node_idx) < num_rows_; }
  void Put(int32_t node_idx, size_t place) { places_[node_idx] = static_cast<int32_t>(place); }

 private:
  std::vector<std::optional<int32_t>> places_;
  int32_t num_rows_;
};

void AddNode(const TokenTree& guess, int32_t node_idx, Places& places, TestedTree& tested) {
  places.Put(node_idx, tested.token_ids.size());
  tested.token_ids.push_back(guess.nodes[node_idx].token_id);
  tested.parents.push_back(*places.Of(guess.nodes[node_idx].parent));
}

void AddGroup(std::span<const int32_t> node_idx, int32_t parent, const Places& places, TestedTree& tested) {
  const size_t first = tested.children.size();
  for (const int32_t child : node_idx) tested.children.push_back(*places.Of(child));
  tested.groups.push_back(
      {.parent = *places.Of(parent), .children = std::span(tested.children).subspan(first, node_idx.size())});
}

// The guessed children of nodes with rows, by parent: [1 + N], the root's first.
std::vector<std::vector<int32_t>> Guesses(const TokenTree& guess, const Places& places) {
  std::vector<int32_t> num_sampled(guess.nodes.size(), 0);
  for (const SampledChildren& group : guess.sampled) {
    for (const int32_t child : group.children) ++num_sampled[child];
  }
  std::vector<std::vector<int32_t>> guesses(guess.nodes.size() + 1);
  for (int32_t node = 0; node < guess.num_nodes(); ++node) {
    const bool is_guessed = num_sampled[node] == 0 || std::popcount(guess.nodes[node].proposers) > num_sampled[node];
    if (is_guessed && places.HasRow(guess.nodes[node].parent)) guesses[guess.nodes[node].parent + 1].push_back(node);
  }
  return guesses;
}

}  // namespace

TestedTree MakeTestedTree(int32_t root_token_id, const TokenTree* guess, std::span<const int32_t> row_node_idx) {
  TestedTree tested;
  tested.token_ids = {root_token_id};
  tested.parents = {-1};
  if (guess == nullptr) return tested;
  Places places(*guess, row_node_idx);
  for (const int32_t node : row_node_idx) AddNode(*guess, node, places, tested);
  for (int32_t node = 0; node < guess->num_nodes(); ++node) {
    if (places.HasRow(guess->nodes[node].parent) && !places.Of(node).has_value()) AddNode(*guess, node, places, tested);
  }

  size_t num_children = guess->nodes.size();  // each may be a guess; the vector must not grow while spans point into it
  for (const SampledChildren& group : guess->sampled) num_children += group.children.size();
  tested.children.reserve(num_children);
  for (const SampledChildren& group : guess->sampled) {
    if (!places.HasRow(group.parent)) continue;
    AddGroup(group.children, group.parent, places, tested);
    tested.groups.back().draft_token_ids = group.draft->token_ids;
    tested.groups.back().draft_probs = group.draft->probs;
  }
  const std::vector<std::vector<int32_t>> guesses = Guesses(*guess, places);
  for (int32_t parent = kRootParent; parent < guess->num_nodes(); ++parent) {
    if (!guesses[parent + 1].empty()) AddGroup(guesses[parent + 1], parent, places, tested);
  }
  std::stable_sort(tested.groups.begin(), tested.groups.end(),
                   [](const auto& a, const auto& b) { return a.parent < b.parent; });
  return tested;
}

}  // namespace foretoken::verifier
