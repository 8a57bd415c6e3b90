// SPDX-License-Identifier: Apache-2.0
// The tree in the form that rejection sampling takes: the nodes with rows, every child drawn at one of them, and the
// proposer that drew it.
//
// The tree includes children without a row. To leave them out would select among drawn values. The grouping of a node's
// children does not depend on their values either. A child that one proposer sampled and another guessed stands among
// the guesses too. Its test there, after its rejection as a sampled child, has no effect. So a node has a group of
// guesses exactly if some proposer guesses there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/speculation/token_tree.h"
#include "kernels/ops.h"

namespace foretoken::verifier {

// It may be moved but not copied: groups point into it, and into the guess's draft distributions.
struct TestedTree {
  TestedTree() = default;
  TestedTree(TestedTree&&) = default;
  TestedTree& operator=(TestedTree&&) = default;

  std::vector<int32_t> token_ids;              // [N] the root, the nodes with rows, then the tested nodes without rows
  std::vector<int32_t> parents;                // [N]
  std::vector<kernels::DrawnChildren> groups;  // by parent; at one node the sampled groups first, then one group of all
                                               // guesses
  std::vector<int32_t> children;               // the memory of groups[].children
};

// `guess` may be null if there is none. `row_node_idx` are its nodes with rows, ascending.
TestedTree MakeTestedTree(int32_t root_token_id, const speculation::TokenTree* guess,
                          std::span<const int32_t> row_node_idx);

}  // namespace foretoken::verifier
