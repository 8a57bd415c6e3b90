// SPDX-License-Identifier: Apache-2.0
// The tree that a draft model grows below one sequence: pure data, no model.
//
// A node is *expanded* once the model has been asked what follows it: then it has its children, and its K/V is stored.
// The *frontier* is what is not expanded. Growing takes the frontier node of the largest promise.
//
// A promise is what expanding the node is worth. The best N nodes go to the verifier; the next root is then a node that
// did not go, below one that did: the token that the verifier emits after the path it accepted. So nodes whose parents
// are among the best N promise their path chance: they are the next root with that chance, or lead there. What lies
// deeper is of use only after that, when it can still be grown, and promises a tenth of its path chance. A path chance
// never exceeds its parent's, so the best N nodes of the whole, endless tree are found first.
//
//   GrowingTree tree(32);
//   tree.Expand(GrowingTree::kRoot, children);
//   while (tree.BestPromise() > 0.01f) tree.Expand(tree.TakeBest(), ...);
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

  // `num_sent`: how many of the best nodes are sent; 0: all, so that a node promises its path chance.
  explicit GrowingTree(int32_t num_sent = 0) : nodes_(1), num_sent_(num_sent) {}

  void Aim(int32_t num_sent);

  const Node& node(int32_t node_idx) const { return nodes_[node_idx]; }
  int32_t num_nodes() const { return static_cast<int32_t>(nodes_.size()); }
  // Without the root.
  int32_t num_expanded() const { return num_expanded_; }
  bool is_root_expanded() const { return nodes_[kRoot].is_expanded; }
  std::span<const Node> Children(int32_t node_idx) const;

  // The largest promise in the frontier below the root; nothing where there is none.
  std::optional<float> BestPromise() const;
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
  std::vector<int32_t> Clear();

  // The best nodes, in the order of their path chances. Sampled children come all or not at all, in the order of their
  // parents' path chances: the first that do not fit end the tree.
  speculation::TokenTree Snapshot(uint64_t position, int32_t max_nodes) const;

  // Dies unless parents, children, depths, chances, slots and the frontier agree.
  void CheckIntegrity() const;

 private:
  struct Candidate {
    float worth;  // a path chance or a promise
    int32_t node_idx;
    // A heap's top is its largest: the best one, then the older node.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.worth != b.worth ? a.worth < b.worth : a.node_idx > b.node_idx;
    }
  };

  speculation::TokenTree SnapshotOfGuesses(uint64_t position, int32_t max_nodes) const;
  speculation::TokenTree SnapshotOfSamples(uint64_t position, int32_t max_nodes) const;
  std::optional<int32_t> FindChild(int32_t node_idx, int32_t token_id) const;
  // The tree below `root` alone, with new indices.
  std::vector<Node> SubTree(int32_t root) const;
  void Replace(std::vector<Node> nodes);
  void Reckon();
  void AddToBest(float path_chance);
  float Promise(int32_t node_idx) const;
  void RefreshTop();

  std::vector<Node> nodes_;
  int32_t num_sent_;
  std::vector<float> best_chances_;  // of the num_sent_ best nodes, a heap with the smallest on top
  // A heap by promise; the root is never in it. A promise falls when better nodes push its parent out of what is sent:
  // entries may be too high, but the top never is.
  std::vector<Candidate> frontier_;
  int32_t num_expanded_ = 0;
};

}  // namespace foretoken::proposer
