// SPDX-License-Identifier: Apache-2.0
// The distribution of a walk's output, with all draws of the proposers and all coins enumerated. This one check accepts
// right rules and rejects wrong rules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/speculation/tested_tree.h"
#include "kernels/ops.h"
#include "kernels/rejection_sampling.h"
#include "tests/reference/block_verification.h"
#include "tests/testing/distributions/enumerated_coins.h"
#include "tests/testing/distributions/small_distribution.h"
#include "tests/testing/distributions/small_proposer.h"

namespace foretoken::testing {

// The tolerance for sums of a few thousand products of doubles.
inline constexpr double kExact = 1e-12;

// Returns the nodes of a tree that have rows: ascending, and each with its parent.
using RowChoice = std::function<std::vector<int32_t>(const speculation::TokenTree&)>;

inline std::vector<int32_t> AllRows(const speculation::TokenTree& tree) {
  std::vector<int32_t> node_idx(tree.nodes.size());
  for (size_t i = 0; i < node_idx.size(); ++i) node_idx[i] = static_cast<int32_t>(i);
  return node_idx;
}

// Gives rows to the best nodes by stated chance, as the engine does within a row budget.
inline RowChoice BestRows(int32_t row_budget) {
  return [row_budget](const speculation::TokenTree& tree) {
    std::vector<int32_t> node_idx = speculation::BestNodeIdx(tree, row_budget);
    std::sort(node_idx.begin(), node_idx.end());
    return node_idx;
  };
}

// The distribution of a process. The process returns the tokens of one outcome.
template <typename Process>  // std::vector<int32_t>(Branches&)
EmittedDistribution DistributionOf(const SmallDistribution& target, Process&& process) {
  EmittedDistribution distribution(target);
  EnumerateOutcomes([&](Branches& branches) {
    const std::vector<int32_t> emitted = process(branches);
    distribution.Add(emitted, branches.probability());
  });
  return distribution;
}

// A walk is any function of (tree, rows, coins, path), like the production walks.
struct ByRejection {
  void operator()(const kernels::TreeToAccept& tree, SmallRows& rows, EnumeratedCoins& coins,
                  kernels::AcceptedPath& path) const {
    kernels::WalkByRejection(tree, rows, coins, path);
  }
};

struct ByBlock {
  void operator()(const kernels::TreeToAccept& tree, SmallRows& rows, EnumeratedCoins& coins,
                  kernels::AcceptedPath& path) const {
    reference::WalkBlock(tree, rows, coins, path);
  }
};

// Returns the tokens that one step emits for a tree, part of which has rows.
template <typename Walk>
std::vector<int32_t> Emit(const SmallDistribution& target, std::span<const int32_t> context,
                          const speculation::TokenTree& tree, std::span<const int32_t> row_node_idx, Branches& branches,
                          Walk&& walk) {
  const verifier::TestedTree tested = verifier::MakeTestedTree(0, &tree, row_node_idx);
  const kernels::TreeToAccept to_accept = TreeOf(tested, row_node_idx.size(), context.size());
  SmallRows rows(target, context, to_accept);
  EnumeratedCoins coins(branches);
  kernels::AcceptedPath path;
  walk(to_accept, rows, coins, path);
  return path.token_ids;
}

// The distribution of a step's output. The proposers draw its trees, and production code merges them.
template <typename Walk>
EmittedDistribution DistributionOf(const SmallDistribution& target, std::span<const SmallProposer> proposers,
                                   const RowChoice& rows, Walk&& walk) {
  return DistributionOf(target, [&](Branches& branches) {
    std::vector<speculation::TokenTree> trees;
    for (const SmallProposer& proposer : proposers) trees.push_back(DrawTree(proposer, {}, branches));
    const speculation::TokenTree tree = speculation::Merge(trees);
    return Emit(target, {}, tree, rows(tree), branches, walk);
  });
}

// The distance of this distribution from the target's.
template <typename Walk>
double DistributionError(const SmallDistribution& target, std::span<const SmallProposer> proposers,
                         const RowChoice& rows, Walk&& walk) {
  return DistributionOf(target, proposers, rows, walk).Error();
}

}  // namespace foretoken::testing
