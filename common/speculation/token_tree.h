// SPDX-License-Identifier: Apache-2.0
// A token tree: candidate continuations of one sequence below its root, the last committed token. Pure data and pure
// functions; a parent stands before its children.
//
// After "the cat", the guesses "sat down" and "slept" are the nodes
//   {.token_id = sat, .parent = -1, .chance = .6}, {.token_id = down, .parent = 0, .chance = .8},
//   {.token_id = slept, .parent = -1, .chance = .3}
//
// Source: the shape of a tree that one forward pass verifies is SpecInfer's (2305.09781).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace foretoken::speculation {

// A parent of a node that hangs directly below the root.
inline constexpr int32_t kRootParent = -1;
inline constexpr int32_t kMaxTreeNodes = 1024;

// What children were sampled from: a truncated draft distribution, exactly as it came over the wire. Its distribution
// is probs / (their sum in double, in order).
struct DraftDistribution {
  std::vector<int32_t> token_ids;  // [k] strictly ascending
  std::vector<float> probs;        // [k] at least 0
};

// All children that one proposer sampled at one node, without replacement.
struct SampledChildren {
  int32_t parent = kRootParent;
  std::vector<int32_t> children;                   // node indices, in the order of sampling; at least one
  std::shared_ptr<const DraftDistribution> draft;  // never null; shared by the copies of a tree
};

struct TreeNode {
  int32_t token_id = 0;
  int32_t parent = kRootParent;  // an index below the node's own, or kRootParent
  float chance = 1;              // in (0, 1], conditional on the parent being accepted
  uint32_t proposers = 0;        // bit i: the proposer of index i suggested the node

  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

struct TokenTree {
  uint64_t position = 0;        // tokens of the sequence above the tree; the root is the token at position - 1
  std::vector<TreeNode> nodes;  // [N]

  // Rejection sampling needs to know how children were drawn. A child that stands in none of these is a guess: a point
  // mass. At most one entry per node and proposer, and a node's are in the order in which they are tested. Its test is
  // exact only for children that nobody has chosen among, so whatever makes a tree of a tree keeps all of a node's
  // sampled children or none. Empty under the keyed draw.
  std::vector<SampledChildren> sampled;

  int32_t num_nodes() const { return static_cast<int32_t>(nodes.size()); }

  // Adds a node and returns its index. Its parent stands in the tree already.
  int32_t Append(const TreeNode& node) {
    nodes.push_back(node);
    return num_nodes() - 1;
  }
};

// What a tree from outside must satisfy before anything reads it. INVALID_ARGUMENT names the rule, the node, expected
// and got: size, parents, ids in [0, num_tokens), finite chances in (0, 1], siblings with distinct
// tokens.
absl::Status Validate(const TokenTree& tree, int32_t num_tokens, int32_t max_nodes);

// Whether every node's parent stands before it: all that the functions below rely on. Linear in the nodes.
bool HasParentsFirst(const TokenTree& tree);

// The tree below the path `committed`, the tokens committed since tree.position: its position grows by their number.
// Empty when they leave the tree. Never an error: a late tree is worth what is left of it.
TokenTree ReRoot(const TokenTree& tree, std::span<const int32_t> committed);

// The nodes that carry `tokens` from the root on, as far as the tree goes along.
std::vector<int32_t> MatchedPath(const TokenTree& tree, std::span<const int32_t> tokens);

// One trie of all trees; they stand at the same position. A node that several suggest keeps the largest chance and all
// of their proposer bits. Children keep the order of first appearance. A node's sampled children are tested one tree's
// after another's, also those that two trees sampled. A child that one sampled and another guessed counts as sampled
// only: once its test has rejected it nothing is left of its target_prob, and a point's test would do nothing.
TokenTree Merge(std::span<const TokenTree> trees);

// The chance that each node is reached and emitted: the product along its path. [N]
std::vector<float> PathChances(const TokenTree& tree);

// The nodes at most `max_depth` tokens below the root; its children stand at depth 1. A node's children go together.
TokenTree CutDepth(const TokenTree& tree, int32_t max_depth);

// The indices of at most `max_nodes` nodes, best first: by path chance, ties to the lower index. A parent stands before
// its children. Which nodes stand before a node does not depend on its descendants: they never do.
std::vector<int32_t> BestNodeIdx(const TokenTree& tree, int32_t max_nodes);

// The rows to compute: the sub-tree of the given nodes, ascending, and with every node its parent. It says nothing of
// how its nodes were drawn (`sampled` is empty), for it may lack siblings; the whole tree does, and stays beside it.
TokenTree Keep(const TokenTree& tree, std::span<const int32_t> node_idx);

// The best nodes as rows; their order is the tree's.
TokenTree BestNodes(const TokenTree& tree, int32_t max_nodes);

}  // namespace foretoken::speculation
