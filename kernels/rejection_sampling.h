// SPDX-License-Identifier: Apache-2.0
// Rejection sampling, the second rule. Drawn children are tested against target_prob / draft_prob, so the emitted
// tokens follow the target's distribution exactly, whatever was drafted. The functions are pure: the caller passes in
// rows and coins. A server calls them, and so does a test that enumerates all coins.
//
// At a node the children come in the order of sampling, one proposer's after another's:
//   accept x with probability min(1, P(x) / Q(x)); when it is rejected
//     P <- norm((P - Q)+),  Q <- norm(Q with x set to 0)
//   a guess is a point mass, Q(x) = 1; when it is rejected  P <- norm(P with x set to 0)
// When no child is left, the token is drawn from P. With one child per node this is the token-wise rule.
//
// Drawn children without a row are tested too. To leave out a child without a row would select among drawn values, and
// the test is exact only if no code has selected among the children.
//
// Coins are a class with
//   void Begin(uint32_t t);                                   the next coins belong to the token at index t
//   bool Accept(double target_prob, double draft_prob);       with probability min(1, target_prob / draft_prob)
//   int32_t Draw(std::span<const double> weights);            an index, with probability weight / sum of weights
// Rows are a callable
//   RowWeights rows(int32_t node_idx, std::span<const int32_t> path_token_ids);
//
// Sources: 2211.17192, 2302.01318 (token-wise); 2402.14160 (recursive, without replacement).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/host_device.h"
#include "kernels/ops.h"
#include "kernels/target_residual.h"

namespace foretoken::kernels {

// target_prob at a node's row, unnormalised. The reader may overwrite it before it asks for the next row.
struct RowWeights {
  DrawStatus status = DrawStatus::kOk;
  std::span<double> weights;  // [V] with a positive sum, when kOk
};

// Returns the accepted child of a node. Unset: the token is to be drawn from `target`. A device has its own types of
// trees and distributions, with the interfaces of TreeToAccept, TargetResidual and DrawnDistribution.
template <typename Draft = DrawnDistribution, typename Tree, typename Target, typename Coins>
FT_HOST_DEVICE std::optional<int32_t> TestChildren(const Tree& tree, int32_t node_idx, Target& target, Coins& coins) {
  for (const auto& drawn : tree.drawn) {
    if (drawn.parent != node_idx) continue;
    Draft draft(drawn);
    for (const int32_t child : drawn.children) {
      const int32_t token_id = tree.token_ids[child];
      if (coins.Accept(target.Prob(token_id), draft.Prob(token_id))) return child;
      if (draft.is_point()) {
        target.Remove(token_id);
      } else {
        target.Subtract(draft);
        draft.Remove(token_id);
      }
      // Here P equals Q but for rounding, so the child could not have been rejected.
      if (target.is_empty()) return child;
    }
  }
  return std::nullopt;
}

// Fills status, token_ids and node_idx of the path.
template <typename Rows, typename Coins>
void WalkByRejection(const TreeToAccept& tree, Rows&& rows, Coins& coins, AcceptedPath& path) {
  for (int32_t node_idx = 0; node_idx < tree.num_rows;) {
    const RowWeights row = rows(node_idx, path.token_ids);
    path.status = row.status;
    if (row.status != DrawStatus::kOk) return;
    path.node_idx.push_back(node_idx);
    coins.Begin(tree.context_len + static_cast<uint32_t>(path.token_ids.size()));
    TargetResidual target(row.weights);
    const std::optional<int32_t> child = TestChildren(tree, node_idx, target, coins);
    path.token_ids.push_back(child.has_value() ? tree.token_ids[*child] : coins.Draw(target.weights()));
    if (!child.has_value()) return;
    node_idx = *child;
  }
}

}  // namespace foretoken::kernels
