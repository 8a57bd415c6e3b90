// SPDX-License-Identifier: Apache-2.0
#include "common/speculation/token_tree.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/container/fixed_array.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace foretoken::speculation {
namespace {

absl::Status ValidateSize(const TokenTree& tree, int32_t max_nodes) {
  if (tree.nodes.size() <= static_cast<size_t>(std::max(max_nodes, 0))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("token tree size: expected at most ", max_nodes, " nodes, got ", tree.nodes.size()));
}

absl::Status ValidateNode(const TokenTree& tree, int32_t node_idx, int32_t num_tokens) {
  const int32_t parent = tree.nodes[node_idx].parent;
  if (parent < kRootParent || parent >= node_idx) {
    return absl::InvalidArgumentError(
        absl::StrCat("token tree node ", node_idx, ": parent expected in [-1, ", node_idx, "), got ", parent));
  }
  const int32_t token = tree.nodes[node_idx].token_id;
  if (token < 0 || token >= num_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("token tree node ", node_idx, ": token id expected in [0, ", num_tokens, "), got ", token));
  }
  const float chance = tree.nodes[node_idx].chance;
  if (!(chance > 0 && chance <= 1)) {  // a NaN fails too
    return absl::InvalidArgumentError(
        absl::StrCat("token tree node ", node_idx, ": chance expected in (0, 1], got ", chance));
  }
  return absl::OkStatus();
}

absl::Status ValidateSiblings(const TokenTree& tree) {
  struct Edge {
    int32_t parent, token, node_idx;
  };
  std::vector<Edge> edges(tree.num_nodes());
  for (int32_t i = 0; i < tree.num_nodes(); ++i) edges[i] = {tree.nodes[i].parent, tree.nodes[i].token_id, i};
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    if (a.parent != b.parent) return a.parent < b.parent;
    return a.token != b.token ? a.token < b.token : a.node_idx < b.node_idx;
  });
  for (size_t i = 1; i < edges.size(); ++i) {
    if (edges[i].parent == edges[i - 1].parent && edges[i].token == edges[i - 1].token) {
      return absl::InvalidArgumentError(absl::StrCat("token tree node ", edges[i].node_idx,
                                                     ": siblings expected with distinct tokens, got token ",
                                                     edges[i].token, " of node ", edges[i - 1].node_idx, " again"));
    }
  }
  return absl::OkStatus();
}

TreeNode Below(TreeNode node, int32_t parent) {
  node.parent = parent;
  return node;
}

// The places of one tree's nodes in another tree. Unset: the node is not in the other tree.
using NodeMap = absl::FixedArray<std::optional<int32_t>, 64>;

// The group with its nodes' new indices; all of its children have one.
SampledChildren Moved(const SampledChildren& group, int32_t parent, const NodeMap& moved) {
  SampledChildren result{.parent = parent, .draft = group.draft};
  result.children.reserve(group.children.size());
  for (const int32_t child : group.children) result.children.push_back(moved[child].value());
  return result;
}

}  // namespace

absl::Status Validate(const TokenTree& tree, int32_t num_tokens, int32_t max_nodes) {
  if (absl::Status status = ValidateSize(tree, max_nodes); !status.ok()) return status;
  for (int32_t i = 0; i < tree.num_nodes(); ++i) {
    if (absl::Status status = ValidateNode(tree, i, num_tokens); !status.ok()) return status;
  }
  return ValidateSiblings(tree);
}

bool HasParentsFirst(const TokenTree& tree) {
  for (int32_t i = 0; i < tree.num_nodes(); ++i) {
    if (tree.nodes[i].parent < kRootParent || tree.nodes[i].parent >= i) return false;
  }
  return true;
}

std::vector<int32_t> MatchedPath(const TokenTree& tree, std::span<const int32_t> tokens) {
  // A child comes after its parent, so one sweep finds the whole path.
  std::vector<int32_t> path;
  path.reserve(tokens.size());
  int32_t parent = kRootParent;
  for (int32_t i = 0; i < tree.num_nodes() && path.size() < tokens.size(); ++i) {
    if (tree.nodes[i].parent != parent || tree.nodes[i].token_id != tokens[path.size()]) continue;
    path.push_back(i);
    parent = i;
  }
  return path;
}

TokenTree ReRoot(const TokenTree& tree, std::span<const int32_t> committed) {
  if (committed.empty()) return tree;
  TokenTree result{.position = tree.position + committed.size()};
  const std::vector<int32_t> path = MatchedPath(tree, committed);
  if (path.size() < committed.size()) return result;
  const int32_t root = path.back();
  result.nodes.reserve(tree.num_nodes() - root - 1);
  NodeMap kept(tree.nodes.size());
  for (int32_t i = root + 1; i < tree.num_nodes(); ++i) {
    const int32_t parent = tree.nodes[i].parent;
    if (parent == root) {
      kept[i] = result.Append(Below(tree.nodes[i], kRootParent));
    } else if (parent > root && kept[parent].has_value()) {
      kept[i] = result.Append(Below(tree.nodes[i], *kept[parent]));
    }
  }
  for (const SampledChildren& group : tree.sampled) {
    if (group.parent == root) {
      result.sampled.push_back(Moved(group, kRootParent, kept));
    } else if (group.parent > root && kept[group.parent].has_value()) {
      result.sampled.push_back(Moved(group, *kept[group.parent], kept));
    }
  }
  return result;
}

TokenTree Merge(std::span<const TokenTree> trees) {
  TokenTree merged;
  if (trees.empty()) return merged;
  merged.position = trees.front().position;
  absl::flat_hash_map<std::pair<int32_t, int32_t>, int32_t> nodes;  // (merged parent, token) -> merged node
  for (const TokenTree& tree : trees) {
    FT_CHECK(tree.position == merged.position);
    NodeMap merged_idx(tree.nodes.size());
    const auto merged_parent = [&](int32_t parent) {
      return parent == kRootParent ? kRootParent : *merged_idx[parent];
    };
    for (int32_t i = 0; i < tree.num_nodes(); ++i) {
      const int32_t parent = merged_parent(tree.nodes[i].parent);
      const auto [it, is_new] = nodes.try_emplace(std::pair(parent, tree.nodes[i].token_id), merged.num_nodes());
      const int32_t node_idx = it->second;
      merged_idx[i] = node_idx;
      if (is_new) {
        merged.Append(Below(tree.nodes[i], parent));
      } else {
        merged.nodes[node_idx].chance = std::max(merged.nodes[node_idx].chance, tree.nodes[i].chance);
        merged.nodes[node_idx].proposers |= tree.nodes[i].proposers;
      }
    }
    for (const SampledChildren& group : tree.sampled) {
      merged.sampled.push_back(Moved(group, merged_parent(group.parent), merged_idx));
    }
  }
  return merged;
}

std::vector<float> PathChances(const TokenTree& tree) {
  std::vector<float> path_chances(tree.num_nodes());
  for (int32_t i = 0; i < tree.num_nodes(); ++i) {
    const int32_t parent = tree.nodes[i].parent;
    path_chances[i] = parent == kRootParent ? tree.nodes[i].chance : path_chances[parent] * tree.nodes[i].chance;
  }
  return path_chances;
}

TokenTree CutDepth(const TokenTree& tree, int32_t max_depth) {
  std::vector<int32_t> depths(tree.num_nodes());
  std::vector<int32_t> kept;
  NodeMap kept_idx(tree.nodes.size());
  for (int32_t i = 0; i < tree.num_nodes(); ++i) {
    const int32_t parent = tree.nodes[i].parent;
    depths[i] = parent == kRootParent ? 1 : depths[parent] + 1;
    if (depths[i] > max_depth) continue;
    kept_idx[i] = static_cast<int32_t>(kept.size());
    kept.push_back(i);
  }
  TokenTree cut = Keep(tree, kept);
  for (const SampledChildren& group : tree.sampled) {
    if (!kept_idx[group.children.front()].has_value()) continue;
    cut.sampled.push_back(Moved(group, group.parent == kRootParent ? kRootParent : *kept_idx[group.parent], kept_idx));
  }
  return cut;
}

TokenTree Keep(const TokenTree& tree, std::span<const int32_t> node_idx) {
  TokenTree kept{.position = tree.position};
  kept.nodes.reserve(node_idx.size());
  absl::FixedArray<int32_t, 64> kept_idx(tree.nodes.size());
  for (const int32_t node : node_idx) {
    const int32_t parent = tree.nodes[node].parent;
    kept_idx[node] = kept.Append(Below(tree.nodes[node], parent == kRootParent ? kRootParent : kept_idx[parent]));
  }
  return kept;
}

std::vector<int32_t> BestNodeIdx(const TokenTree& tree, int32_t max_nodes) {
  // A child's path chance never exceeds its parent's, and its index is higher. So the best nodes always include their
  // parents.
  const std::vector<float> path_chances = PathChances(tree);
  std::vector<int32_t> order(tree.num_nodes());
  std::iota(order.begin(), order.end(), 0);
  const auto best_end = order.begin() + std::clamp(max_nodes, 0, tree.num_nodes());
  std::partial_sort(order.begin(), best_end, order.end(), [&](int32_t a, int32_t b) {
    return path_chances[a] != path_chances[b] ? path_chances[a] > path_chances[b] : a < b;
  });
  order.erase(best_end, order.end());
  return order;
}

TokenTree BestNodes(const TokenTree& tree, int32_t max_nodes) {
  std::vector<int32_t> node_idx = BestNodeIdx(tree, max_nodes);
  std::sort(node_idx.begin(), node_idx.end());
  return Keep(tree, node_idx);
}

}  // namespace foretoken::speculation
