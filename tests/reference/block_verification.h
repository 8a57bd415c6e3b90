// SPDX-License-Identifier: Apache-2.0
// Block verification, which the system does not have: a sampled chain is judged as a whole, which accepts at least as
// many tokens as token by token, and as many as any exact rule can. But it asks for more than a server of many
// proposers can see to, as tests/exact shows:
// - A block takes x_1 back because of x_2. So the choice to judge a tree as a block must not depend on drawn tokens: it
//   is no reason that the tree happens to be a chain.
// - A block looks at tokens beyond the one that it rejects. A proposer that draws them anew with the same noise drafts
//   the tokens that the block has looked at.
// Rows, coins and distributions are those of kernels/rejection_sampling.h.
//
// For a chain x_1 ... x_n with distributions P_i and Q_i of x_(i + 1) after x_1 ... x_i:
//   p_0 = 1,  p_i = min(1, p_(i-1) P_(i-1)(x_i) / Q_(i-1)(x_i))
//   Z_i = sum of (p_i P_i - Q_i)+,  h_i = Z_i / (Z_i + 1 - p_i) for i < n,  h_n = p_n
// The longest i whose own coin is at most h_i is accepted, none otherwise; after it comes a token drawn from
// norm((p_i P_i - Q_i)+), or from P_n. All coins belong to the index of x_1, which is emitted in any case: a coin that
// decided about a later index must not be seen there again.
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

// Whether every drawn child is the only one of its parent, sampled, and the parent of the next; at least two.
inline bool IsSampledChain(const TreeToAccept& tree) {
  int32_t node_idx = 0;
  for (const DrawnChildren& drawn : tree.drawn) {
    if (drawn.parent != node_idx || drawn.children.size() != 1 || drawn.draft_probs.empty()) return false;
    node_idx = drawn.children[0];
  }
  return tree.drawn.size() >= 2;
}

// One token's weight over the sum of all weights.
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

// How much of a chain is accepted.
struct AcceptedBlock {
  size_t num_accepted = 0;
  double scale = 1;  // p_i at its end
};

// What stands behind x_1 ... x_n. A row that cannot be drawn from ends the chain before it: n becomes smaller.
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
  // Nothing is left where P is Q but for rounding; then x_1 had no chance to be rejected.
  path.token_ids.push_back(left <= 0 ? chain[accepted.num_accepted] : coins.Draw(row.weights));
}

}  // namespace foretoken::reference
