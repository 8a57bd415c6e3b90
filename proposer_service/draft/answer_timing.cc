// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/answer_timing.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <vector>

namespace foretoken::proposer {
namespace {

// The number of children of a node that count. Later children are seldom among a tree's best nodes.
constexpr size_t kPlaces = 4;
using ChancesByPlace = std::array<double, kPlaces>;

// The mean share that the first, second, ... child takes of its parent's chance. The mean is over the nodes that have
// children, the root included, weighted by their path chances.
ChancesByPlace MeanChances(const speculation::TokenTree& tree, const std::vector<float>& path_chances) {
  ChancesByPlace sums{};
  double total = 0;
  std::vector<size_t> num_children(tree.nodes.size() + 1);  // by parent, the root first
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    const size_t parent = tree.nodes[i].parent + 1;
    const double parent_chance = parent == 0 ? 1 : path_chances[parent - 1];
    const size_t place = num_children[parent]++;  // siblings stand in the order of their chances
    if (place == 0) total += parent_chance;
    if (place < kPlaces) sums[place] += path_chances[i];
  }
  for (double& sum : sums) sum /= total;
  return sums;
}

std::vector<float> BestLeaves(const speculation::TokenTree& tree, const std::vector<float>& path_chances,
                              size_t num_leaves) {
  std::vector<bool> has_children(tree.nodes.size());
  for (const speculation::TreeNode& node : tree.nodes) {
    if (node.parent != speculation::kRootParent) has_children[node.parent] = true;
  }
  std::vector<float> leaves;
  for (size_t i = 0; i < path_chances.size(); ++i) {
    if (!has_children[i]) leaves.push_back(path_chances[i]);
  }
  num_leaves = std::min(num_leaves, leaves.size());
  std::partial_sort(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(num_leaves), leaves.end(),
                    std::greater());
  leaves.resize(num_leaves);
  return leaves;
}

double SumOfBest(std::vector<float> chances, int32_t num_best) {
  const auto end = chances.begin() + std::min<std::ptrdiff_t>(num_best, std::ssize(chances));
  std::partial_sort(chances.begin(), end, chances.end(), std::greater());
  return std::accumulate(chances.begin(), end, 0.0);
}

}  // namespace

ExpectedGrowth ExpectGrowth(const speculation::TokenTree& tree, int32_t node_budget, int32_t num_rows) {
  if (tree.num_nodes() == 0) return {};
  std::vector<float> chances = speculation::PathChances(tree);
  const double sum = SumOfBest(chances, node_budget);
  const ChancesByPlace by_place = MeanChances(tree, chances);
  for (const float leaf : BestLeaves(tree, chances, num_rows)) {
    for (const double chance : by_place) chances.push_back(static_cast<float>(leaf * chance));
  }
  return {.value = 1 + sum, .gain = SumOfBest(std::move(chances), node_budget) - sum};
}

bool IsWorthAnotherPass(const speculation::TokenTree& tree, int32_t node_budget, const ExpectedPass& pass,
                        const Patience& patience) {
  // The wait must have room for two passes: passes differ in time, and one may have begun already.
  if (2 * pass.duration > patience.left || patience.step <= absl::ZeroDuration()) return false;
  const ExpectedGrowth growth = ExpectGrowth(tree, node_budget, pass.num_rows);
  return growth.gain / growth.value > absl::FDivDuration(pass.duration, patience.step);
}

}  // namespace foretoken::proposer
