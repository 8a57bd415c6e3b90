// SPDX-License-Identifier: Apache-2.0
// Returns one property of all nodes of a token tree, for comparisons.
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

}  // namespace foretoken::testing
