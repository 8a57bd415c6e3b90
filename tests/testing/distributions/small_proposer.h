// SPDX-License-Identifier: Apache-2.0
// Proposers over small distributions, whose draws can be enumerated, and what a step of the verifier makes of their
// trees: all but the forward pass is production code.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "common/speculation/tested_tree.h"
#include "common/speculation/token_tree.h"
#include "kernels/ops.h"
#include "kernels/rejection_sampling.h"
#include "tests/testing/distributions/enumerated_coins.h"
#include "tests/testing/distributions/small_distribution.h"

namespace foretoken::testing {

// How a proposer finds a node's children.
enum class Drawing {
  kSampled,  // from its distribution, without replacement; it says so, and the ratio test is theirs
  kKeyed,    // so, too, in effect: the top of log draft_prob + noise; tested as points
  kBest,     // the likeliest, by no chance; tested as points
};

// A node that may get another child.
struct NodePlace {
  std::span<const int32_t> path;      // tokens from the tree's root to the node
  std::span<const int32_t> ranks;     // of the nodes on the path among their siblings
  std::span<const int32_t> siblings;  // tokens of the children that it has
};

struct SmallProposer {
  const SmallDistribution* distribution = nullptr;
  Drawing drawing = Drawing::kSampled;
  std::function<bool(const NodePlace&)> wants_child;
  uint32_t proposer_idx = 0;
};

// The proposer's tree at the end of `context`, the tokens emitted so far.
speculation::TokenTree DrawTree(const SmallProposer& proposer, std::span<const int32_t> context, Branches& branches);

// The children that were drawn so far, by everything that stands before them. A session of a proposer grows one tree:
// what was drawn once stays.
using DrawnChildrenByPath = std::map<std::vector<int32_t>, std::vector<int32_t>>;

// A snapshot of a session's tree, its nodes at most `max_depth` below the end of the context.
speculation::TokenTree SnapshotTree(const SmallProposer& proposer, std::span<const int32_t> context, int32_t max_depth,
                                    DrawnChildrenByPath& drawn, Branches& branches);

// The distribution a node's children are sampled from, as it goes over the wire: without zeros.
speculation::DraftDistribution DraftOf(std::span<const double> row);

// What a small target says at a tree's nodes. Rows come unnormalised, and are written to by their reader.
class SmallRows {
 public:
  SmallRows(const SmallDistribution& target, std::span<const int32_t> context, const kernels::TreeToAccept& tree)
      : target_(target), context_(context.begin(), context.end()), tree_(tree) {}

  kernels::RowWeights operator()(int32_t node_idx, std::span<const int32_t> path_token_ids);

 private:
  const SmallDistribution& target_;
  std::vector<int32_t> context_;
  const kernels::TreeToAccept& tree_;
  std::vector<double> row_;
};

// The tree as the verifier takes it, where the given nodes (ascending, closed under parents) have rows.
kernels::TreeToAccept TreeOf(const verifier::TestedTree& tested, size_t num_row_nodes, size_t context_len);

}  // namespace foretoken::testing
