// SPDX-License-Identifier: Apache-2.0
// Returns one property of the nodes of a token tree, for comparisons.
#pragma once

#include <cstdint>
#include <vector>

#include "common/speculation/token_tree.h"

namespace foretoken::testing {

inline std::vector<int32_t> TokenIds(const speculation::TokenTree& tree) {
  std::vector<int32_t> token_ids;
  for (const speculation::TreeNode& node : tree.nodes) token_ids.push_back(node.token_id);
  return token_ids;
}

inline std::vector<int32_t> Parents(const speculation::TokenTree& tree) {
  std::vector<int32_t> parents;
  for (const speculation::TreeNode& node : tree.nodes) parents.push_back(node.parent);
  return parents;
}

// The tokens of the path from the root that takes the first child each time.
inline std::vector<int32_t> FirstChain(const speculation::TokenTree& tree) {
  std::vector<int32_t> chain;
  int32_t node_idx = speculation::kRootParent;
  for (int32_t i = 0; i < tree.num_nodes(); ++i) {
    if (tree.nodes[i].parent != node_idx) continue;
    chain.push_back(tree.nodes[i].token_id);
    node_idx = i;
  }
  return chain;
}

// 0: the root has no such child.
inline float ChanceOfRootChild(const speculation::TokenTree& tree, int32_t token_id) {
  for (const speculation::TreeNode& node : tree.nodes) {
    if (node.parent == speculation::kRootParent && node.token_id == token_id) return node.chance;
  }
  return 0;
}

}  // namespace foretoken::testing
