// SPDX-License-Identifier: Apache-2.0
// The invariants of a suffix tree, for tests.
#include <algorithm>

#include "proposer_service/suffix/suffix_tree.h"

namespace foretoken::proposer {

bool SuffixTree::CheckIntegrity() const {
  std::vector<NodeIdx> roots;
  for (const Text& text : texts_) roots.push_back(text.root);
  std::sort(roots.begin(), roots.end());
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  return std::all_of(roots.begin(), roots.end(), [&](NodeIdx root) {
    std::vector<int32_t> path;
    return CheckNode(root, root, path);
  });
}

bool SuffixTree::CheckNode(NodeIdx node_idx, NodeIdx root, std::vector<int32_t>& path) const {
  const SuffixNode& node = nodes_[node_idx];
  if (node.depth != path.size()) return false;
  if (node_idx != root) {
    const NodeIdx link = node.link;
    if (link == kNoNode) return false;
    for (int32_t i = 1; i < node.depth; ++i) {
      if (text_[Wrap(nodes_[link].begin + i - 1)] != path[i]) return false;
    }
    if (nodes_[link].depth + 1 != node.depth || nodes_[link].count < node.count) return false;
  }
  uint64_t sum = 0;
  uint32_t last_count = 0xFFFFFFFF;
  for (const SuffixEdge& edge : edges_.Get(node)) {
    if (edge.count == 0 || edge.count > last_count || edges_.Find(node, edge.token_id) != &edge) return false;
    last_count = edge.count;
    sum += edge.count;
    const TextPos begin = BeginOf(edge.target);
    for (int32_t i = 0; i < node.depth; ++i) {
      if (text_[Wrap(begin + i)] != path[i]) return false;
    }
    if (text_[Wrap(begin + node.depth)] != edge.token_id) return false;
    if (edge.target.is_leaf()) continue;
    const SuffixNode& below = nodes_[edge.target.node()];
    if (below.count != edge.count || below.depth <= node.depth) return false;
    for (int32_t i = node.depth; i < below.depth; ++i) path.push_back(text_[Wrap(begin + i)]);
    if (!CheckNode(edge.target.node(), root, path)) return false;
    path.resize(node.depth);
  }
  // A node below the root has a string that continues in more than one way, or ends a text somewhere.
  const std::span<const SuffixEdge> edges = edges_.Get(node);
  if (node_idx != root && (edges.empty() || edges[0].count == node.count)) return false;
  return sum <= node.count;
}

}  // namespace foretoken::proposer
