// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix/suffix_tree.h"

#include <algorithm>

namespace foretoken::proposer {

SuffixTree::SuffixTree(const SuffixTreeOptions& options)
    : max_depth_(options.max_depth),
      max_tokens_(options.max_tokens),
      num_places_(options.max_tokens + 1),
      window_(options.max_depth + 1) {
  FT_CHECK(1 <= max_depth_ && max_depth_ <= kMaxDepth && max_tokens_ <= kMaxTokens);
}

// --- nodes and text ---

NodeIdx SuffixTree::NewNode(TextPos begin, int32_t depth, uint32_t count) {
  NodeIdx idx = free_nodes_;
  if (idx == kNoNode) {
    idx = nodes_.AppendRun(1);
  } else {
    free_nodes_ = nodes_[idx].link;
    --num_free_nodes_;
  }
  SuffixNode& node = nodes_[idx];
  node = {.begin = begin, .link = kNoNode, .count = count, .depth = static_cast<uint16_t>(depth)};
  SuffixEdges::Init(node);
  return idx;
}

void SuffixTree::FreeNode(NodeIdx node) {
  edges_.Release(nodes_[node]);
  nodes_[node].link = free_nodes_;
  free_nodes_ = node;
  ++num_free_nodes_;
}

NodeIdx SuffixTree::AddRoot() { return NewNode(0, 0, 0); }

void SuffixTree::RemoveRoot(NodeIdx root) {
  FT_CHECK(nodes_[root].count == 0);
  FreeNode(root);
}

void SuffixTree::Write(TextPos pos, int32_t token_id) {
  if (pos == text_.size()) text_.AppendRun(1);
  text_[pos] = token_id;
}

std::vector<int32_t> SuffixTree::CopyText(size_t text_idx) const {
  const Text& text = texts_[text_idx];
  std::vector<int32_t> tokens(text.length);
  for (uint32_t i = 0; i < text.length; ++i) tokens[i] = text_[Wrap(text.begin + i)];
  return tokens;
}

size_t SuffixTree::num_bytes() const {
  return text_.size() * sizeof(int32_t) + nodes_.size() * sizeof(SuffixNode) + edges_.num_bytes() +
         texts_.size() * sizeof(Text);
}

// --- growing ---

void SuffixTree::Append(NodeIdx root, int32_t token_id) {
  Push(root, token_id);
  while (!AppendStep()) {
  }
}

void SuffixTree::Push(NodeIdx root, int32_t token_id) {
  if (root_ == kNoNode) {
    FT_CHECK(free_places() > 1);
    root_ = root;
    text_begin_ = end_;
    active_ = AtRoot(root);
    window_.Clear();
    ++used_places_;
  }
  FT_CHECK(root == root_ && free_places() > 0);
  ++used_places_;
  Write(end_, token_id);
  end_ = Wrap(end_ + 1);
  Write(end_, kEndOfText);
  window_.Push(token_id);
}

bool SuffixTree::AppendStep() {
  const int32_t depth = active_.depth;
  const std::span<const int32_t> path = window_.Last(depth + 1);
  if (depth < max_depth_ && Extend(active_, path.back())) return true;
  CountSuffix(path, depth, depth < max_depth_ ? std::optional(path.back()) : std::nullopt);
  if (depth == 0) return true;
  ShortenActive(path.first(depth));
  return false;
}

void SuffixTree::End() {
  while (!EndStep()) {
  }
}

bool SuffixTree::EndStep() {
  if (root_ == kNoNode) return true;
  if (const int32_t depth = active_.depth; depth > 0) {
    const std::span<const int32_t> path = window_.Last(depth);
    CountSuffix(path, depth, std::nullopt);
    ShortenActive(path);
    return false;
  }
  const uint32_t length = end_ >= text_begin_ ? end_ - text_begin_ : end_ + num_places_ - text_begin_;
  texts_.push_back({.root = root_, .begin = text_begin_, .length = length});
  end_ = Wrap(end_ + 1);
  root_ = kNoNode;
  unlinked_ = kNoNode;
  return true;
}

// Counting changes the tree below the active match only, so the node above it is still valid.
void SuffixTree::ShortenActive(std::span<const int32_t> path) {
  FT_CHECK(Shorten(active_, root_, path));
  if (active_.at_node()) LinkLastNode(active_.node);
}

void SuffixTree::LinkLastNode(NodeIdx node) {
  if (unlinked_ == kNoNode) return;
  FT_CHECK(nodes_[unlinked_].depth == nodes_[node].depth + 1);
  nodes_[unlinked_].link = node;
  unlinked_ = kNoNode;
}

void SuffixTree::CountSuffix(std::span<const int32_t> path, int32_t depth, std::optional<int32_t> next_token) {
  const TextPos begin = Before(end_, static_cast<uint32_t>(path.size()));
  NodeIdx node_idx = root_;
  while (true) {
    SuffixNode& node = nodes_[node_idx];
    node.begin = begin;
    ++node.count;
    if (node.depth == depth) {
      if (next_token.has_value()) edges_.Add(node, {*next_token, 1, SuffixTarget::Leaf(begin)});
      return;
    }
    SuffixEdge* edge = edges_.Increment(node, edges_.Find(node, path[node.depth]));
    if (!edge->target.is_leaf() && nodes_[edge->target.node()].depth <= depth) {
      node_idx = edge->target.node();
      continue;
    }
    const bool whole_leaf =
        !next_token.has_value() && (depth == max_depth_ || text_[Wrap(BeginOf(edge->target) + depth)] == kEndOfText);
    if (whole_leaf) {
      edge->target = SuffixTarget::Leaf(begin);
    } else {
      Split(*edge, depth, begin, next_token);
    }
    return;
  }
}

// The caller has counted the edge already.
void SuffixTree::Split(SuffixEdge& edge, int32_t depth, TextPos begin, std::optional<int32_t> next_token) {
  const NodeIdx node_idx = NewNode(begin, depth, edge.count);
  SuffixNode& node = nodes_[node_idx];
  // Occurrences at the end of a text count in the node and have no edge.
  const int32_t old_token = text_[Wrap(BeginOf(edge.target) + depth)];
  if (old_token != kEndOfText) edges_.Add(node, {old_token, edge.count - 1, edge.target});
  if (next_token.has_value()) edges_.Add(node, {*next_token, 1, SuffixTarget::Leaf(begin)});
  edge.target = SuffixTarget::Node(node_idx);
  LinkLastNode(node_idx);
  unlinked_ = node_idx;
}

// --- forgetting ---

void SuffixTree::ForgetOldest() {
  while (!ForgetStep()) {
  }
}

bool SuffixTree::ForgetStep() {
  FT_CHECK(root_ == kNoNode && !texts_.empty());
  const Text& text = texts_.front();
  if (num_forgotten_ == 0) forgotten_text_ = CopyText(0);
  if (num_forgotten_ < text.length) {
    const size_t length = std::min<size_t>(max_depth_, text.length - num_forgotten_);
    UncountSuffix(text.root, std::span(forgotten_text_).subspan(num_forgotten_++, length));
    return false;
  }
  used_places_ -= text.length + 1;
  texts_.pop_front();
  num_forgotten_ = 0;
  return true;
}

void SuffixTree::UncountSuffix(NodeIdx root, std::span<const int32_t> path) {
  NodeIdx parent_idx = kNoNode;
  NodeIdx node_idx = root;
  while (true) {
    SuffixNode& node = nodes_[node_idx];
    --node.count;
    if (node.depth == path.size()) break;
    SuffixEdge* edge = edges_.Find(node, path[node.depth]);
    if (edge->count == 1) {
      FreeBelow(edge->target);
      edges_.Remove(node, edge);
      break;
    }
    edge = edges_.Decrement(node, edge);
    if (edge->target.is_leaf()) return;
    parent_idx = node_idx;
    node_idx = edge->target.node();
  }
  if (node_idx != root) Tidy(parent_idx, node_idx, path);
}

void SuffixTree::Tidy(NodeIdx parent_idx, NodeIdx node_idx, std::span<const int32_t> path) {
  const SuffixNode& node = nodes_[node_idx];
  const std::span<const SuffixEdge> edges = edges_.Get(node);
  SuffixTarget rest;
  if (edges.empty()) {
    rest = SuffixTarget::Leaf(node.begin);  // all its occurrences end their texts
  } else if (edges.size() == 1 && edges[0].count == node.count) {
    rest = edges[0].target;
  } else {
    return;
  }
  const SuffixNode& parent = nodes_[parent_idx];
  edges_.Find(parent, path[parent.depth])->target = rest;
  FreeNode(node_idx);
}

// The nodes below a string that occurs once form a chain.
void SuffixTree::FreeBelow(SuffixTarget target) {
  while (!target.is_leaf()) {
    const NodeIdx node = target.node();
    const std::span<const SuffixEdge> edges = edges_.Get(nodes_[node]);
    target = edges.empty() ? SuffixTarget::Leaf(0) : edges[0].target;
    FreeNode(node);
  }
}

}  // namespace foretoken::proposer
