// SPDX-License-Identifier: Apache-2.0
// A tree as rejection sampling takes it: the nodes that have rows, every child drawn at one of them, and who drew it.
//
// A child is never left out for want of a row: that would be a choice among drawn values. Nor is how its node's
// children are grouped a matter of their values: a child that one proposer sampled and another guessed stands in the
// guesses too, where its test, behind the rejection, does nothing. So a node has a group of guesses exactly if somebody
// guesses there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/speculation/token_tree.h"
#include "kernels/ops.h"

namespace foretoken::verifier {

// May be moved, not copied: groups point into it, and into the guess's draft distributions.
struct TestedTree {
  TestedTree() = default;
  TestedTree(TestedTree&&) = default;
  TestedTree& operator=(TestedTree&&) = default;

  std::vector<int32_t> token_ids;              // [N] the root, the nodes with rows, then the tested ones without
  std::vector<int32_t> parents;                // [N]
  std::vector<kernels::DrawnChildren> groups;  // by parent; at one node sampled ones first, then all guesses as one
  std::vector<int32_t> children;               // behind groups[].children
};

// `guess` may be null: nothing was guessed. `row_node_idx`: its nodes that have rows, ascending.
TestedTree MakeTestedTree(int32_t root_token_id, const speculation::TokenTree* guess,
                          std::span<const int32_t> row_node_idx);

}  // namespace foretoken::verifier
