// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/growing_tree.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "kernels/check.h"

namespace foretoken::proposer {

std::span<const GrowingTree::Node> GrowingTree::Children(int32_t node_idx) const {
  const Node& node = nodes_[node_idx];
  return std::span(nodes_).subspan(node.first_child, node.num_children);
}

void GrowingTree::SetNumSent(int32_t num_sent) {
  if (std::exchange(num_sent_, num_sent) != num_sent) RecomputeFrontier();
}

void GrowingTree::SetMaxDepth(int32_t max_depth) {
  if (std::exchange(max_depth_, max_depth) != max_depth) RecomputeFrontier();
}

std::optional<float> GrowingTree::BestWorth() const {
  if (frontier_.empty()) return std::nullopt;
  return frontier_.front().worth;
}

float GrowingTree::Worth(int32_t node_idx) const {
  constexpr float kDeeperWorth = 0.1f;
  const Node& node = nodes_[node_idx];
  const bool all_are_sent = static_cast<int32_t>(best_chances_.size()) < num_sent_ || num_sent_ == 0;
  const bool is_parent_sent = all_are_sent || nodes_[node.parent].path_chance >= best_chances_.front();
  return is_parent_sent ? node.path_chance : kDeeperWorth * node.path_chance;
}

void GrowingTree::RefreshTop() {
  while (!frontier_.empty() && Worth(frontier_.front().node_idx) < frontier_.front().worth) {
    std::pop_heap(frontier_.begin(), frontier_.end());
    frontier_.back().worth = Worth(frontier_.back().node_idx);
    std::push_heap(frontier_.begin(), frontier_.end());
  }
}

void GrowingTree::AddToBest(float path_chance) {
  if (num_sent_ == 0) return;
  const bool is_full = static_cast<int32_t>(best_chances_.size()) == num_sent_;
  if (is_full && path_chance <= best_chances_.front()) return;
  if (is_full) {
    std::pop_heap(best_chances_.begin(), best_chances_.end(), std::greater());
    best_chances_.pop_back();
  }
  best_chances_.push_back(path_chance);
  std::push_heap(best_chances_.begin(), best_chances_.end(), std::greater());
}

void GrowingTree::RecomputeFrontier() {
  best_chances_.clear();
  frontier_.clear();
  num_expanded_ = 0;
  for (int32_t i = 1; i < num_nodes(); ++i) {
    AddToBest(nodes_[i].path_chance);
    if (nodes_[i].is_expanded) ++num_expanded_;
  }
  for (int32_t i = 1; i < num_nodes(); ++i) {
    if (!nodes_[i].is_expanded && nodes_[i].depth < max_depth_) frontier_.push_back({Worth(i), i});
  }
  std::make_heap(frontier_.begin(), frontier_.end());
}

int32_t GrowingTree::TakeBest() {
  FT_CHECK(!frontier_.empty());
  std::pop_heap(frontier_.begin(), frontier_.end());
  const int32_t node_idx = frontier_.back().node_idx;
  frontier_.pop_back();
  RefreshTop();
  return node_idx;
}

std::vector<int32_t> GrowingTree::PathSlots(int32_t node_idx) const {
  std::vector<int32_t> slots(nodes_[node_idx].depth);
  for (int32_t node = node_idx; node != kRoot; node = nodes_[node].parent) {
    slots[nodes_[node].depth - 1] = nodes_[node].slot.value();
  }
  return slots;
}

void GrowingTree::Expand(int32_t node_idx, std::span<const Child> children,
                         std::shared_ptr<const speculation::DraftDistribution> draft) {
  FT_CHECK(!nodes_[node_idx].is_expanded);
  if (node_idx != kRoot) ++num_expanded_;
  nodes_[node_idx].is_expanded = true;
  nodes_[node_idx].draft = std::move(draft);
  nodes_[node_idx].first_child = num_nodes();
  nodes_[node_idx].num_children = static_cast<int32_t>(children.size());
  for (const Child& child : children) {
    const Node& parent = nodes_[node_idx];
    Node node{.child = child, .parent = node_idx, .depth = parent.depth + 1};
    node.path_chance = parent.path_chance * child.chance;
    nodes_.push_back(std::move(node));
    AddToBest(nodes_.back().path_chance);
    if (nodes_.back().depth >= max_depth_) continue;
    frontier_.push_back({Worth(num_nodes() - 1), num_nodes() - 1});
    std::push_heap(frontier_.begin(), frontier_.end());
  }
  RefreshTop();
}

std::optional<int32_t> GrowingTree::FindChild(int32_t node_idx, int32_t token_id) const {
  const Node& node = nodes_[node_idx];
  for (int32_t child = node.first_child; child < node.first_child + node.num_children; ++child) {
    if (nodes_[child].child.token_id == token_id) return child;
  }
  return std::nullopt;
}

GrowingTree::Advanced GrowingTree::Advance(std::span<const int32_t> committed) {
  Advanced advanced;
  std::optional<int32_t> at = kRoot;
  for (const int32_t token_id : committed) {
    at = FindChild(*at, token_id);
    if (!at.has_value()) break;
    if (nodes_[*at].slot.has_value()) advanced.path_slots.push_back(*std::exchange(nodes_[*at].slot, std::nullopt));
  }
  std::vector<Node> kept = at.has_value() ? SubTree(*at) : std::vector<Node>(1);
  advanced.freed_slots = SlotsWithout(kept);  // the path has given up its own
  Replace(std::move(kept));
  return advanced;
}

std::vector<int32_t> GrowingTree::SlotsWithout(std::span<const Node> kept) const {
  std::vector<int32_t> held, freed;
  for (const Node& node : kept) {
    if (node.slot.has_value()) held.push_back(*node.slot);
  }
  std::sort(held.begin(), held.end());
  for (const Node& node : nodes_) {
    if (node.slot.has_value() && !std::binary_search(held.begin(), held.end(), *node.slot)) freed.push_back(*node.slot);
  }
  return freed;
}

std::vector<int32_t> GrowingTree::ReplaceRootChildren(std::span<const Child> children,
                                                      std::shared_ptr<const speculation::DraftDistribution> draft) {
  FT_CHECK(is_root_expanded());
  std::vector<Node> kept = {nodes_[kRoot]};
  kept[0].draft = std::move(draft);
  kept[0].first_child = 1;
  kept[0].num_children = static_cast<int32_t>(children.size());
  for (const Child& child : children) {
    const std::optional<int32_t> old = FindChild(kRoot, child.token_id);
    kept.push_back(old.has_value() ? nodes_[*old] : Node{});
    kept.back().child = child;
    kept.back().parent = kRoot;
  }
  CopyBelow(1, kept);
  std::vector<int32_t> freed = SlotsWithout(kept);
  Replace(std::move(kept));
  return freed;
}

std::vector<GrowingTree::Node> GrowingTree::SubTree(int32_t root) const {
  std::vector<Node> kept = {nodes_[root]};
  kept[0].parent = -1;
  CopyBelow(0, kept);
  return kept;
}

void GrowingTree::CopyBelow(size_t first, std::vector<Node>& kept) const {
  for (size_t i = first; i < kept.size(); ++i) {  // breadth first; the vector grows in the loop
    const int32_t old_first = kept[i].first_child;
    kept[i].first_child = static_cast<int32_t>(kept.size());
    for (int32_t child = old_first; child < old_first + kept[i].num_children; ++child) {
      kept.push_back(nodes_[child]);
      kept.back().parent = static_cast<int32_t>(i);
    }
  }
  kept[0].child.chance = kept[0].path_chance = 1;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i == 0) {
      kept[i].depth = 0;
    } else {
      const Node& parent = kept[kept[i].parent];
      kept[i].depth = parent.depth + 1;
      kept[i].path_chance = parent.path_chance * kept[i].child.chance;
    }
  }
}

void GrowingTree::Replace(std::vector<Node> nodes) {
  nodes_ = std::move(nodes);
  RecomputeFrontier();
}

std::vector<int32_t> GrowingTree::Clear() {
  std::vector<int32_t> freed;
  for (const Node& node : nodes_) {
    if (node.slot.has_value()) freed.push_back(*node.slot);
  }
  std::vector<Node> kept = {nodes_[kRoot]};
  for (Node child : Children(kRoot)) {
    child.slot.reset();
    child.is_expanded = false;
    child.num_children = 0;
    child.draft.reset();
    kept.push_back(std::move(child));
  }
  kept[kRoot].first_child = 1;
  Replace(std::move(kept));
  return freed;
}

speculation::TokenTree GrowingTree::Snapshot(uint64_t position, int32_t max_nodes) const {
  return nodes_[kRoot].draft == nullptr ? SnapshotOfGuesses(position, max_nodes)
                                        : SnapshotOfSamples(position, max_nodes);
}

speculation::TokenTree GrowingTree::SnapshotOfSamples(uint64_t position, int32_t max_nodes) const {
  speculation::TokenTree tree{.position = position};
  std::priority_queue<Candidate> expanded;
  std::vector<int32_t> tree_idx(nodes_.size(), speculation::kRootParent);
  expanded.push({1, kRoot});
  while (!expanded.empty()) {
    const int32_t node_idx = expanded.top().node_idx;
    const Node& node = nodes_[node_idx];
    expanded.pop();
    if (node.num_children == 0) continue;
    if (tree.num_nodes() + node.num_children > max_nodes) break;
    speculation::SampledChildren group{.parent = tree_idx[node_idx], .draft = node.draft};
    for (int32_t child = node.first_child; child < node.first_child + node.num_children; ++child) {
      const Child& drawn = nodes_[child].child;
      tree_idx[child] = tree.Append({.token_id = drawn.token_id, .parent = group.parent, .chance = drawn.chance});
      group.children.push_back(tree_idx[child]);
      if (nodes_[child].is_expanded) expanded.push({nodes_[child].path_chance, child});
    }
    tree.sampled.push_back(std::move(group));
  }
  return tree;
}

speculation::TokenTree GrowingTree::SnapshotOfGuesses(uint64_t position, int32_t max_nodes) const {
  speculation::TokenTree tree{.position = position};
  std::priority_queue<Candidate> open;
  std::vector<int32_t> tree_idx(nodes_.size(), speculation::kRootParent);
  const auto open_children = [&](int32_t node_idx) {
    const Node& node = nodes_[node_idx];
    for (int32_t child = node.first_child; child < node.first_child + node.num_children; ++child) {
      open.push({nodes_[child].path_chance, child});
    }
  };
  open_children(kRoot);
  while (!open.empty() && tree.num_nodes() < max_nodes) {
    const int32_t node_idx = open.top().node_idx;
    open.pop();
    const Node& node = nodes_[node_idx];
    tree_idx[node_idx] =
        tree.Append({.token_id = node.child.token_id, .parent = tree_idx[node.parent], .chance = node.child.chance});
    open_children(node_idx);
  }
  return tree;
}

void GrowingTree::CheckIntegrity() const {
  int32_t num_expanded = 0, num_taken = 0;
  std::vector<int32_t> slots;
  for (int32_t i = 0; i < num_nodes(); ++i) {
    const Node& node = nodes_[i];
    if (node.slot.has_value()) slots.push_back(*node.slot);
    if (node.is_expanded) {
      if (i != kRoot) ++num_expanded;
      for (const Node& child : Children(i)) FT_CHECK(child.parent == i);
    } else {
      FT_CHECK(node.num_children == 0);
      const auto is_node = [i](const Candidate& candidate) { return candidate.node_idx == i; };
      if (i != kRoot && std::none_of(frontier_.begin(), frontier_.end(), is_node)) ++num_taken;
    }
    if (i == kRoot) {
      FT_CHECK(node.parent == -1 && node.depth == 0 && node.path_chance == 1 && !node.slot.has_value());
      continue;
    }
    FT_CHECK(node.parent >= 0 && node.parent < i && nodes_[node.parent].is_expanded);
    const Node& parent = nodes_[node.parent];
    FT_CHECK(node.depth == parent.depth + 1 && node.path_chance == parent.path_chance * node.child.chance);
    FT_CHECK(node.child.chance > 0 && node.child.chance <= 1);
    FT_CHECK(node.parent == kRoot || parent.slot.has_value());
  }
  FT_CHECK(num_expanded == num_expanded_);
  FT_CHECK(static_cast<int32_t>(frontier_.size()) + num_taken + num_expanded + 1 == num_nodes());
  FT_CHECK(std::is_heap(frontier_.begin(), frontier_.end()));
  for (const Candidate& candidate : frontier_) FT_CHECK(candidate.worth >= Worth(candidate.node_idx));
  FT_CHECK(frontier_.empty() || frontier_.front().worth == Worth(frontier_.front().node_idx));
  FT_CHECK(num_sent_ == 0 || static_cast<int32_t>(best_chances_.size()) == std::min(num_sent_, num_nodes() - 1));
  std::sort(slots.begin(), slots.end());
  FT_CHECK(std::adjacent_find(slots.begin(), slots.end()) == slots.end());
}

}  // namespace foretoken::proposer
