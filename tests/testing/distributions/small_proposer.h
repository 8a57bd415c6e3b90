// SPDX-License-Identifier: Apache-2.0
// Proposers over small distributions, for tests that add up exact probabilities, and a verifier step over their trees.
// Everything except the forward pass is production code.
//
// A test makes every possible draw of a tree, one after another (Branches). SamplingProposer
// (fakes/sampling_proposer.h) makes one draw, by its noise: an engine can ask it, but no sum over its draws is exact.
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

// The method by which a proposer chooses a node's children.
enum class Drawing {
  kSampled,  // sampled from its distribution without replacement, and tested by the ratio test
  kKeyed,    // the top of log draft_prob + noise, which has the same distribution; tested as points
  kBest,     // the most likely tokens, without randomness; tested as points
};

// A node that may get another child.
struct NodePlace {
  std::span<const int32_t> path;      // tokens from the tree's root to the node
  std::span<const int32_t> ranks;     // of the nodes on the path among their siblings
  std::span<const int32_t> siblings;  // tokens of its children so far
};

struct SmallProposer {
  const SmallDistribution* distribution = nullptr;
  Drawing drawing = Drawing::kSampled;
  std::function<bool(const NodePlace&)> wants_child;
  uint32_t proposer_idx = 0;
};

// Draws the proposer's tree at the end of `context`, which is the tokens emitted so far.
speculation::TokenTree DrawTree(const SmallProposer& proposer, std::span<const int32_t> context, Branches& branches);

// The children drawn so far, by the path to their parent. A session of a proposer grows one tree and keeps its draws.
using DrawnChildrenByPath = std::map<std::vector<int32_t>, std::vector<int32_t>>;

// Returns a snapshot of a session's tree, with nodes at most `max_depth` below the end of the context.
speculation::TokenTree SnapshotTree(const SmallProposer& proposer, std::span<const int32_t> context, int32_t max_depth,
                                    DrawnChildrenByPath& drawn, Branches& branches);

// Returns the distribution of a node's children in its form for the protocol, without zeros.
speculation::DraftDistribution DraftOf(std::span<const double> row);

// The rows of a small target at a tree's nodes. Rows are not normalised, and their reader may overwrite them.
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

// Returns the tree in the form of the verifier's op. The first `num_row_nodes` nodes have rows.
kernels::TreeToAccept TreeOf(const verifier::TestedTree& tested, size_t num_row_nodes, size_t context_len);

}  // namespace foretoken::testing
