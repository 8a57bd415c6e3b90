// SPDX-License-Identifier: Apache-2.0
// The reference for block verification, which the server does not use. It verifies a sampled chain as a whole. It
// accepts at least as many tokens as token-by-token verification, and as many as any exact rule can. But it has
// requirements that a server with many proposers cannot ensure, as tests/exact shows:
// - A block may reject x_1 because of x_2. So the choice of block verification must not depend on drawn tokens, for
//   example on the fact that the tree is a chain.
// - A block reads tokens beyond its first rejected token. A proposer that draws again with the same noise drafts these
//   tokens again.
// Rows, coins and distributions are as in kernels/rejection_sampling.h.
//
// For a chain x_1 ... x_n with distributions P_i and Q_i of x_(i + 1) after x_1 ... x_i:
//   p_0 = 1,  p_i = min(1, p_(i-1) P_(i-1)(x_i) / Q_(i-1)(x_i))
//   Z_i = sum of (p_i P_i - Q_i)+,  h_i = Z_i / (Z_i + 1 - p_i) for i < n,  h_n = p_n
// The rule accepts the longest i whose own coin is at most h_i, or nothing. Then it draws a token from
// norm((p_i P_i - Q_i)+), or from P_n. All coins belong to the index of x_1, because every outcome emits a token there.
// A later index must not read the same coin again.
//
// Source: 2403.10444, Algorithm 2.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "kernels/rejection_sampling.h"
#include "kernels/target_residual.h"

namespace foretoken::reference {

using kernels::AcceptedPath;
using kernels::DrawnChildren;
using kernels::DrawnDistribution;
using kernels::DrawStatus;
using kernels::RowWeights;
using kernels::TreeToAccept;

// True if the tree is a chain of at least two sampled children.
inline bool IsSampledChain(const TreeToAccept& tree) {
  int32_t node_idx = 0;
  for (const DrawnChildren& drawn : tree.drawn) {
    if (drawn.parent != node_idx || drawn.children.size() != 1 || drawn.draft_probs.empty()) return false;
    node_idx = drawn.children[0];
  }
  return tree.drawn.size() >= 2;
}

// Returns one token's weight divided by the sum of all weights.
inline double ProbOf(std::span<const double> weights, int32_t token_id) {
  return weights[token_id] / std::accumulate(weights.begin(), weights.end(), 0.0);
}

// Replaces a row's weights by (scale P - Q)+, where P is the normalised row and Q the draft, and returns their sum.
inline double SubtractDraft(double scale, const DrawnDistribution& draft, std::span<double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double left = 0;
  for (size_t id = 0; id < weights.size(); ++id) {
    const double prob = scale * weights[id] / sum;
    weights[id] = std::max(0.0, prob - draft.Prob(static_cast<int32_t>(id)));
    left += weights[id];
  }
  return left;
}

// The accepted part of a chain.
struct AcceptedBlock {
  size_t num_accepted = 0;
  double scale = 1;  // p_i at its end
};

// Returns the accepted part of x_1 ... x_n. A row without a possible draw ends the chain before it, so n becomes
// smaller.
template <typename Rows, typename Coins>
AcceptedBlock JudgeBlock(const TreeToAccept& tree, std::span<const int32_t> chain, Rows& rows, Coins& coins) {
  AcceptedBlock accepted;
  double scale = 1;
  size_t num_judged = 0;
  for (; num_judged < chain.size(); ++num_judged) {
    const DrawnChildren& drawn = tree.drawn[num_judged];
    const RowWeights row = rows(drawn.parent, chain.first(num_judged));
    if (row.status != DrawStatus::kOk) break;
    const DrawnDistribution draft(drawn);
    const int32_t token_id = chain[num_judged];
    const double next_scale = std::min(1.0, scale * ProbOf(row.weights, token_id) / draft.Prob(token_id));
    const double left = SubtractDraft(scale, draft, row.weights);
    if (num_judged > 0 && left > 0 && coins.Accept(left, left + 1 - scale)) accepted = {num_judged, scale};
    scale = next_scale;
    if (scale == 0) return accepted;
  }
  if (num_judged > 0 && coins.Accept(scale, 1)) accepted = {num_judged, scale};
  return accepted;
}

// Fills status, token_ids and node_idx of the path. The tree is a sampled chain.
template <typename Rows, typename Coins>
void WalkBlock(const TreeToAccept& tree, Rows&& rows, Coins& coins, AcceptedPath& path) {
  std::vector<int32_t> chain;
  for (const DrawnChildren& drawn : tree.drawn) chain.push_back(tree.token_ids[drawn.children[0]]);
  coins.Begin(tree.context_len);
  const AcceptedBlock accepted = JudgeBlock(tree, chain, rows, coins);
  path.token_ids.assign(chain.begin(), chain.begin() + accepted.num_accepted);
  for (size_t i = 0; i < accepted.num_accepted; ++i) path.node_idx.push_back(tree.drawn[i].parent);
  const bool is_whole = accepted.num_accepted == chain.size();
  const int32_t end = is_whole ? tree.drawn.back().children[0] : tree.drawn[accepted.num_accepted].parent;
  if (end >= tree.num_rows) return;
  const RowWeights row = rows(end, path.token_ids);
  path.status = row.status;
  if (row.status != DrawStatus::kOk) return;
  double left = 1;
  if (!is_whole) {
    left = SubtractDraft(accepted.scale, DrawnDistribution(tree.drawn[accepted.num_accepted]), row.weights);
  }
  path.node_idx.push_back(end);
  // If P equals Q up to rounding, the residual is empty. Then x_1 had no chance of a rejection.
  path.token_ids.push_back(left <= 0 ? chain[accepted.num_accepted] : coins.Draw(row.weights));
}

}  // namespace foretoken::reference
