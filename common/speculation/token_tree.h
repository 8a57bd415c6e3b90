// SPDX-License-Identifier: Apache-2.0
// A token tree: candidate continuations of one sequence below its root, the last committed token. Pure data and pure
// functions; a parent comes before its children.
//
// After "the cat", the guesses "sat down" and "slept" are the nodes
//   {.token_id = sat, .parent = -1, .chance = .6}, {.token_id = down, .parent = 0, .chance = .8},
//   {.token_id = slept, .parent = -1, .chance = .3}
//
// Source: SpecInfer (2305.09781) introduced token trees that one forward pass verifies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace foretoken::speculation {

// The parent of a node directly below the root.
inline constexpr int32_t kRootParent = -1;
inline constexpr int32_t kMaxTreeNodes = 1024;

// The distribution that children were sampled from: a truncated draft distribution, exactly as on the wire. It is
// probs / (their sum in double, in order).
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
  float chance = 1;              // in (0, 1], given that the parent is accepted
  uint32_t proposers = 0;        // bit i: proposer i suggested the node

  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

struct TokenTree {
  uint64_t position = 0;        // number of the sequence's tokens above the tree; the root is the token at position - 1
  std::vector<TreeNode> nodes;  // [N]

  // How children were drawn, for rejection sampling. A child that is in no entry is a guess: a point mass. A node has
  // at most one entry per proposer, and its entries are in the order of their tests. The test is exact only if no code
  // has selected among the children. So a function that makes a tree from a tree keeps all of a node's sampled children
  // or none. Empty under the keyed draw.
  std::vector<SampledChildren> sampled;

  // A drafter that reads the target's hidden states did not have those of this many last tokens when it made the tree,
  // and went on from its own prediction of them. For reports; functions that make a tree from a tree leave it out.
  uint32_t num_predicted_features = 0;

  int32_t num_nodes() const { return static_cast<int32_t>(nodes.size()); }

  // Adds a node and returns its index. Its parent must be in the tree already.
  int32_t Append(const TreeNode& node) {
    nodes.push_back(node);
    return num_nodes() - 1;
  }
};

// Checks the rules for a tree from outside, before anything else reads it. INVALID_ARGUMENT names the rule, the node,
// the expected and the given value: size, parents, ids in [0, num_tokens), finite chances in (0, 1], siblings with
// distinct tokens.
absl::Status Validate(const TokenTree& tree, int32_t num_tokens, int32_t max_nodes);

// True if every node's parent comes before it. The functions below need no more. Linear in the nodes.
bool HasParentsFirst(const TokenTree& tree);

// Returns the tree below the path `committed`, the tokens committed since tree.position. Its position grows by their
// number. It is empty if the tokens leave the tree. This is never an error: the rest of a late tree is still useful.
TokenTree ReRoot(const TokenTree& tree, std::span<const int32_t> committed);

// Returns the nodes that carry `tokens` from the root on, until the first token that no child carries.
std::vector<int32_t> MatchedPath(const TokenTree& tree, std::span<const int32_t> tokens);

// Merges trees at the same position into one trie. A node that several trees have keeps the largest chance and all of
// their proposer bits. Children keep the order of first appearance. At a node, the sampled children of one tree are
// tested after those of the tree before it, even if both trees sampled the same child. A child that one tree sampled
// and another guessed counts as sampled only: once its test has rejected it, no target_prob is left for it, and a
// guess's test would have no effect.
TokenTree Merge(std::span<const TokenTree> trees);

// [N] the chance that each node is reached and emitted: the product of the chances along its path.
std::vector<float> PathChances(const TokenTree& tree);

// Keeps the nodes at most `max_depth` tokens below the root; the root's children have depth 1. All children of a node
// are kept, or none.
TokenTree CutDepth(const TokenTree& tree, int32_t max_depth);

// Returns the indices of at most `max_nodes` nodes, best first: by path chance, ties to the lower index. A parent comes
// before its children. The nodes before a node do not depend on its descendants, which always come after it.
std::vector<int32_t> BestNodeIdx(const TokenTree& tree, int32_t max_nodes);

// Returns the rows to compute: the sub-tree of the given nodes, which are ascending and include every node's parent.
// Its `sampled` is empty, because it may lack siblings. The caller keeps the whole tree beside it for the tests.
TokenTree Keep(const TokenTree& tree, std::span<const int32_t> node_idx);

// Returns the best nodes as rows, in the tree's order.
TokenTree BestNodes(const TokenTree& tree, int32_t max_nodes);

}  // namespace foretoken::speculation
