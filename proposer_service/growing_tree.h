// SPDX-License-Identifier: Apache-2.0
// The tree that a draft model grows below one sequence: pure data, no model.
//
// A node is *expanded* once the model has been asked what follows it: then it has its children, and its K/V is stored.
// The *frontier* is what is not expanded. Growing takes the frontier node of the largest path chance; a path chance
// never exceeds its parent's, so the first N nodes in that order are the best N of the whole, endless tree as soon as
// no better frontier node is left.
//
//   GrowingTree tree;
//   tree.Expand(GrowingTree::kRoot, children);
//   while (std::optional<int32_t> node = tree.TakeBest(0.01f)) tree.Expand(*node, ...);
//   GrowingTree::Advanced advanced = tree.Advance(committed);   // what was grown below the committed path stays
//
// Node 0 is the root, the last committed token; its K/V stands in the context and needs no slot. A slot is a place in
// the K/V cache that the owner gives and takes back.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/speculation/token_tree.h"

namespace foretoken::proposer {

class GrowingTree {
 public:
  static constexpr int32_t kRoot = 0;

  struct Child {
    int32_t token_id = 0;
    float score = 0;   // as the model gave it
    float chance = 1;  // in (0, 1], given the parent
  };

  struct Node {
    Child child;
    int32_t parent = -1;  // the root has none
    int32_t depth = 0;    // of the root: 0
    float path_chance = 1;
    std::optional<int32_t> slot;
    bool is_expanded = false;
    int32_t first_child = 0;  // children stand together, in the order in which they were given
    int32_t num_children = 0;
    // What the children were sampled from; null where they are guesses.
    std::shared_ptr<const speculation::DraftDistribution> draft;
  };

  GrowingTree() : nodes_(1) {}

  const Node& node(int32_t node_idx) const { return nodes_[node_idx]; }
  int32_t num_nodes() const { return static_cast<int32_t>(nodes_.size()); }
  // Without the root.
  int32_t num_expanded() const { return num_expanded_; }
  bool is_root_expanded() const { return nodes_[kRoot].is_expanded; }
  std::span<const Node> Children(int32_t node_idx) const;

  // The path chance of the best frontier node below the root; nothing where there is none.
  std::optional<float> BestChance() const;
  // Takes that node out of the frontier: it is to be expanded, or never will be.
  int32_t TakeBest();
  void SetSlot(int32_t node_idx, int32_t slot) { nodes_[node_idx].slot = slot; }
  // Of the node's path below the root, its own last.
  std::vector<int32_t> PathSlots(int32_t node_idx) const;

  void Expand(int32_t node_idx, std::span<const Child> children,
              std::shared_ptr<const speculation::DraftDistribution> draft = nullptr);

  // What became of the old tree's slots.
  struct Advanced {
    std::vector<int32_t> path_slots;   // of the committed path, the token after the old root first
    std::vector<int32_t> freed_slots;  // of what fell off
  };
  // The tree below the committed tokens becomes the tree. Where they leave it, a lone root is left. The root is
  // expanded if its node was; path_slots then has one slot per token.
  Advanced Advance(std::span<const int32_t> committed);

  // Cuts everything below the root's children away, and returns the slots that are free now.
  std::vector<int32_t> Fell();

  // The best nodes, in the order of their path chances. Sampled children come all or not at all, in the order of their
  // parents' path chances: the first that do not fit end the tree.
  speculation::TokenTree Snapshot(uint64_t position, int32_t max_nodes) const;

  // Dies unless parents, children, depths, chances, slots and the frontier agree.
  void CheckIntegrity() const;

 private:
  struct Candidate {
    float path_chance;
    int32_t node_idx;
    // A heap's top is its largest: the best chance, then the older node.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.path_chance != b.path_chance ? a.path_chance < b.path_chance : a.node_idx > b.node_idx;
    }
  };

  speculation::TokenTree SnapshotOfGuesses(uint64_t position, int32_t max_nodes) const;
  speculation::TokenTree SnapshotOfSamples(uint64_t position, int32_t max_nodes) const;
  std::optional<int32_t> FindChild(int32_t node_idx, int32_t token_id) const;
  // The tree below `root` alone, with new indices.
  std::vector<Node> SubTree(int32_t root) const;
  void Replace(std::vector<Node> nodes);

  std::vector<Node> nodes_;
  std::vector<Candidate> frontier_;  // a heap; the root is never in it
  int32_t num_expanded_ = 0;
};

}  // namespace foretoken::proposer
