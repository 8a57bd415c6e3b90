// SPDX-License-Identifier: Apache-2.0
// The movements of cursors through a suffix tree.
#include <algorithm>

#include "proposer_service/suffix/suffix_tree.h"

namespace foretoken::proposer {

SuffixCursor SuffixTree::AtNode(NodeIdx node_idx) const {
  const SuffixNode& node = nodes_[node_idx];
  return {.node = node_idx, .begin = node.begin, .count = node.count, .depth = node.depth, .node_depth = node.depth};
}

void SuffixTree::Enter(SuffixCursor& cursor, const SuffixEdge& edge) const {
  cursor.target = edge.target;
  cursor.count = edge.count;
  if (edge.target.is_leaf()) {
    cursor.begin = edge.target.leaf_begin();
    cursor.target_depth = SuffixCursor::kLeafDepth;
  } else {
    const SuffixNode& node = nodes_[edge.target.node()];
    cursor.begin = node.begin;
    cursor.target_depth = node.depth;
  }
  Step(cursor);
}

void SuffixTree::Step(SuffixCursor& cursor) const {
  if (++cursor.depth != cursor.target_depth) return;
  cursor.node = cursor.target.node();
  cursor.node_depth = cursor.depth;
}

bool SuffixTree::Extend(SuffixCursor& cursor, int32_t token_id) const {
  if (!cursor.at_node()) {
    if (NextToken(cursor) != token_id) return false;
    Step(cursor);
    return true;
  }
  const SuffixEdge* edge = edges_.Find(nodes_[cursor.node], token_id);
  if (edge == nullptr) return false;
  Enter(cursor, *edge);
  return true;
}

bool SuffixTree::Descend(SuffixCursor& cursor, std::span<const int32_t> path) const {
  bool last_is_read = true;
  while (cursor.depth < path.size()) {
    const int32_t depth = cursor.depth;
    const SuffixEdge* edge = edges_.Find(nodes_[cursor.node], path[depth]);
    if (edge == nullptr) return false;
    Enter(cursor, *edge);
    // The rest of the edge is not compared, because the string is known to be in the tree.
    cursor.depth = static_cast<uint16_t>(std::min<size_t>(path.size(), cursor.target_depth));
    if (cursor.depth == cursor.target_depth) {
      cursor.node = cursor.target.node();
      cursor.node_depth = cursor.depth;
    }
    last_is_read = cursor.depth == depth + 1;
  }
  // While a text grows, a string may lack its last token in the tree. So the last token is compared.
  return last_is_read || text_[Wrap(cursor.begin + cursor.depth - 1)] == path.back();
}

bool SuffixTree::Shorten(SuffixCursor& cursor, NodeIdx root, std::span<const int32_t> path) const {
  const NodeIdx link = cursor.node_depth == 0 ? root : nodes_[cursor.node].link;
  cursor = AtNode(link == kNoNode ? root : link);
  if (Descend(cursor, path.subspan(1))) return true;
  cursor = AtRoot(root);
  return false;
}

void SuffixTree::Prefetch(const SuffixEdge& edge) const {
  if (edge.target.is_leaf()) {
    __builtin_prefetch(&text_[edge.target.leaf_begin()]);
  } else {
    __builtin_prefetch(&nodes_[edge.target.node()]);
  }
}

}  // namespace foretoken::proposer
