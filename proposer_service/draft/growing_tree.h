// SPDX-License-Identifier: Apache-2.0
// The tree that a draft model grows below one sequence: plain data without the model.
//
// A node is *expanded* once the model has computed its row. It then has its children, and its K/V is stored. The
// *frontier* holds the nodes that can be expanded. The tree grows at the frontier node of the largest worth.
//
// The worth of a node is the use of expanding it. The best N nodes go to the verifier. The next root is usually a node
// that was not sent, below a node that was: the token that the verifier emits after the accepted path. So a node whose
// parent is among the best N is worth its path chance: with that chance the node, or one below it, is the next root. A
// deeper node is of use only in a later step and can grow until then, so it is worth a tenth of its path chance. A path
// chance never exceeds the parent's path chance, so the growth finds the best N nodes of the whole, endless tree first.
//
//   GrowingTree tree(32);
//   tree.Expand(GrowingTree::kRoot, children);
//   while (tree.BestWorth() > 0.01f) tree.Expand(tree.TakeBest(), ...);
//   GrowingTree::Advanced advanced = tree.Advance(committed);   // keeps the nodes below the committed path
//
// Node 0 is the root, the last committed token. The root needs no slot, because its K/V is in the context's blocks. A
// slot is a place in the K/V cache. The owner of the tree gives slots to nodes and takes them back.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <limits>
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
    float score = 0;   // the model's score
    float chance = 1;  // in (0, 1], given the parent
  };

  struct Node {
    Child child;
    int32_t parent = -1;  // -1 for the root
    int32_t depth = 0;    // 0 for the root
    float path_chance = 1;
    std::optional<int32_t> slot;
    bool is_expanded = false;
    int32_t first_child = 0;  // children stand together, in the order that Expand got them
    int32_t num_children = 0;
    // The distribution that the children were sampled from; null for guesses.
    std::shared_ptr<const speculation::DraftDistribution> draft;
  };

  // `num_sent`: how many of the best nodes go to the verifier; 0: all, so that a node is worth its path chance.
  explicit GrowingTree(int32_t num_sent = 0) : nodes_(1), num_sent_(num_sent) {}

  void SetNumSent(int32_t num_sent);
  // Nodes at this depth or deeper are never expanded. Unset by default.
  void SetMaxDepth(int32_t max_depth);

  const Node& node(int32_t node_idx) const { return nodes_[node_idx]; }
  int32_t num_nodes() const { return static_cast<int32_t>(nodes_.size()); }
  // Without the root.
  int32_t num_expanded() const { return num_expanded_; }
  bool is_root_expanded() const { return nodes_[kRoot].is_expanded; }
  std::span<const Node> Children(int32_t node_idx) const;

  // The largest worth in the frontier, without the root; unset: the frontier is empty.
  std::optional<float> BestWorth() const;
  // Takes the best node out of the frontier for good. The caller expands it or gives it up.
  int32_t TakeBest();
  void SetSlot(int32_t node_idx, int32_t slot) { nodes_[node_idx].slot = slot; }
  // The slots of the node's path below the root. The node's own slot is last.
  std::vector<int32_t> PathSlots(int32_t node_idx) const;

  void Expand(int32_t node_idx, std::span<const Child> children,
              std::shared_ptr<const speculation::DraftDistribution> draft = nullptr);

  // Gives the expanded root other children. A child that the root had before keeps the nodes below it. Returns the
  // slots that the tree no longer holds.
  std::vector<int32_t> ReplaceRootChildren(std::span<const Child> children,
                                           std::shared_ptr<const speculation::DraftDistribution> draft = nullptr);

  // The slots that the new tree no longer holds.
  struct Advanced {
    std::vector<int32_t> path_slots;   // of the committed path; the token after the old root is first
    std::vector<int32_t> freed_slots;  // of all other dropped nodes
  };
  // Re-roots the tree at the last committed token. If the committed tokens leave the tree, only a root is left. If the
  // new root was expanded as a node, it stays expanded, and path_slots has one slot per token.
  Advanced Advance(std::span<const int32_t> committed);

  // Drops all nodes below the root's children and returns the slots of the tree.
  std::vector<int32_t> Clear();

  // The best nodes, in the order of their path chances. Sampled siblings come together, in the order of their parents'
  // path chances. The first group that does not fit ends the tree.
  speculation::TokenTree Snapshot(uint64_t position, int32_t max_nodes) const;

  // Dies unless parents, children, depths, chances, slots and the frontier agree.
  void CheckIntegrity() const;

 private:
  struct Candidate {
    float worth;  // or a path chance
    int32_t node_idx;
    // The top of a heap is the best candidate, and the older one of equals.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.worth != b.worth ? a.worth < b.worth : a.node_idx > b.node_idx;
    }
  };

  speculation::TokenTree SnapshotOfGuesses(uint64_t position, int32_t max_nodes) const;
  speculation::TokenTree SnapshotOfSamples(uint64_t position, int32_t max_nodes) const;
  std::optional<int32_t> FindChild(int32_t node_idx, int32_t token_id) const;
  // The nodes of the tree below `root`, with new indices.
  std::vector<Node> SubTree(int32_t root) const;
  // Completes the new nodes from `first` on, whose children still have their old indices.
  void CopyBelow(size_t first, std::vector<Node>& kept) const;
  // The slots of this tree that `kept` does not hold.
  std::vector<int32_t> SlotsWithout(std::span<const Node> kept) const;
  void Replace(std::vector<Node> nodes);
  void RecomputeFrontier();
  void AddToBest(float path_chance);
  float Worth(int32_t node_idx) const;
  void RefreshTop();

  std::vector<Node> nodes_;
  int32_t num_sent_;
  int32_t max_depth_ = std::numeric_limits<int32_t>::max();
  std::vector<float> best_chances_;  // path chances of the num_sent_ best nodes; a heap with the smallest on top
  // A heap by worth, without the root. The worth of a node falls when better nodes push its parent out of the best
  // num_sent_ nodes. RefreshTop lowers the top to its true worth; lower entries may still be too high.
  std::vector<Candidate> frontier_;
  int32_t num_expanded_ = 0;
};

}  // namespace foretoken::proposer
