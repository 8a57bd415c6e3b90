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

absl::Status ValidateSizes(const TokenTree& tree, int32_t max_nodes) {
  const size_t num_nodes = tree.token_ids.size();
  if (tree.parents.size() != num_nodes || tree.chances.size() != num_nodes || tree.proposers.size() != num_nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("token tree arrays: expected one length, got ", num_nodes, " token_ids, ", tree.parents.size(),
                     " parents, ", tree.chances.size(), " chances, ", tree.proposers.size(), " proposers"));
  }
  if (num_nodes > static_cast<size_t>(std::max(max_nodes, 0))) {
    return absl::InvalidArgumentError(
        absl::StrCat("token tree size: expected at most ", max_nodes, " nodes, got ", num_nodes));
  }
  return absl::OkStatus();
}

absl::Status ValidateNode(const TokenTree& tree, int32_t node_idx, int32_t num_tokens) {
  const int32_t parent = tree.parents[node_idx];
  if (parent < kRootParent || parent >= node_idx) {
    return absl::InvalidArgumentError(
        absl::StrCat("token tree node ", node_idx, ": parent expected in [-1, ", node_idx, "), got ", parent));
  }
  const int32_t token = tree.token_ids[node_idx];
  if (token < 0 || token >= num_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("token tree node ", node_idx, ": token id expected in [0, ", num_tokens, "), got ", token));
  }
  const float chance = tree.chances[node_idx];
  if (!(chance > 0 && chance <= 1)) {  // NaN fails too
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
  for (int32_t i = 0; i < tree.num_nodes(); ++i) edges[i] = {tree.parents[i], tree.token_ids[i], i};
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

void Reserve(int32_t num_nodes, TokenTree& tree) {
  tree.token_ids.reserve(num_nodes);
  tree.parents.reserve(num_nodes);
  tree.chances.reserve(num_nodes);
  tree.proposers.reserve(num_nodes);
}

void Append(const TokenTree& from, int32_t node_idx, int32_t parent, TokenTree& to) {
  to.token_ids.push_back(from.token_ids[node_idx]);
  to.parents.push_back(parent);
  to.chances.push_back(from.chances[node_idx]);
  to.proposers.push_back(from.proposers[node_idx]);
}

// Where the nodes of one tree stand in another. Nothing: they do not.
using NodeMap = absl::FixedArray<std::optional<int32_t>, 64>;

// A group with its nodes' new indices, which all of its children have.
SampledChildren Moved(const SampledChildren& group, int32_t parent, const NodeMap& moved) {
  SampledChildren result{.parent = parent, .draft = group.draft};
  result.children.reserve(group.children.size());
  for (const int32_t child : group.children) result.children.push_back(moved[child].value());
  return result;
}

}  // namespace

absl::Status Validate(const TokenTree& tree, int32_t num_tokens, int32_t max_nodes) {
  if (absl::Status status = ValidateSizes(tree, max_nodes); !status.ok()) return status;
  for (int32_t i = 0; i < tree.num_nodes(); ++i) {
    if (absl::Status status = ValidateNode(tree, i, num_tokens); !status.ok()) return status;
  }
  return ValidateSiblings(tree);
}

std::vector<int32_t> MatchedPath(const TokenTree& tree, std::span<const int32_t> tokens) {
  // A child stands behind its parent, so one sweep finds the whole path.
  std::vector<int32_t> path;
  path.reserve(tokens.size());
  int32_t parent = kRootParent;
  for (int32_t i = 0; i < tree.num_nodes() && path.size() < tokens.size(); ++i) {
    if (tree.parents[i] != parent || tree.token_ids[i] != tokens[path.size()]) continue;
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
  Reserve(tree.num_nodes() - root - 1, result);
  NodeMap kept(tree.token_ids.size());
  for (int32_t i = root + 1; i < tree.num_nodes(); ++i) {
    const int32_t parent = tree.parents[i];
    if (parent == root) {
      kept[i] = result.num_nodes();
      Append(tree, i, kRootParent, result);
    } else if (parent > root && kept[parent].has_value()) {
      kept[i] = result.num_nodes();
      Append(tree, i, *kept[parent], result);
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
    NodeMap merged_idx(tree.token_ids.size());
    const auto merged_parent = [&](int32_t parent) {
      return parent == kRootParent ? kRootParent : *merged_idx[parent];
    };
    for (int32_t i = 0; i < tree.num_nodes(); ++i) {
      const int32_t parent = merged_parent(tree.parents[i]);
      const auto [it, is_new] = nodes.try_emplace(std::pair(parent, tree.token_ids[i]), merged.num_nodes());
      const int32_t node_idx = it->second;
      merged_idx[i] = node_idx;
      if (is_new) {
        Append(tree, i, parent, merged);
      } else {
        merged.chances[node_idx] = std::max(merged.chances[node_idx], tree.chances[i]);
        merged.proposers[node_idx] |= tree.proposers[i];
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
    const int32_t parent = tree.parents[i];
    path_chances[i] = parent == kRootParent ? tree.chances[i] : path_chances[parent] * tree.chances[i];
  }
  return path_chances;
}

TokenTree CutDepth(const TokenTree& tree, int32_t max_depth) {
  std::vector<int32_t> depths(tree.num_nodes());
  std::vector<int32_t> kept;
  NodeMap kept_idx(tree.token_ids.size());
  for (int32_t i = 0; i < tree.num_nodes(); ++i) {
    const int32_t parent = tree.parents[i];
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
  Reserve(static_cast<int32_t>(node_idx.size()), kept);
  absl::FixedArray<int32_t, 64> kept_idx(tree.token_ids.size());
  for (const int32_t node : node_idx) {
    const int32_t parent = tree.parents[node];
    kept_idx[node] = kept.num_nodes();
    Append(tree, node, parent == kRootParent ? kRootParent : kept_idx[parent], kept);
  }
  return kept;
}

std::vector<int32_t> BestNodeIdx(const TokenTree& tree, int32_t max_nodes) {
  // A child's path chance never exceeds its parent's and its index is higher: the best nodes are closed under parents.
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
