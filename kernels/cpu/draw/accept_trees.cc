// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/draw/accept_trees.h"

#include <optional>
#include <span>

#include "kernels/check.h"
#include "kernels/cpu/draw/draw_row.h"
#include "kernels/cpu/draw/score_row.h"
#include "kernels/cpu/draw/target_weights.h"
#include "kernels/keyed_coins.h"
#include "kernels/rejection_sampling.h"

namespace foretoken::kernels::cpu {
namespace {

// Returns the first of equal siblings. A merged tree has none.
std::optional<int32_t> FindChild(const TreeToAccept& tree, int32_t node_idx, int32_t token_id) {
  for (size_t child = node_idx + 1; child < tree.parents.size(); ++child) {
    if (tree.parents[child] == node_idx && tree.token_ids[child] == token_id) return static_cast<int32_t>(child);
  }
  return std::nullopt;
}

// The whole row, padding included, as the model wrote it.
std::span<const float> WholeRow(const AcceptTreesArgs& args, const TreeToAccept& tree, int32_t node_idx) {
  const int64_t width = args.logits.shape[1];
  return {args.logits.as<float>() + (tree.first_logit_row + node_idx) * width, static_cast<size_t>(width)};
}

AdjustRowArgs RowOf(const AcceptTreesArgs& args, const TreeToAccept& tree, int32_t node_idx,
                    std::span<const int32_t> path_token_ids) {
  return {.logits = WholeRow(args, tree, node_idx).first(args.num_tokens),
          .sampling = tree.sampling,
          .bias = tree.bias,
          .counts = tree.counts,
          .path_token_ids = path_token_ids,
          .mask = tree.masks.empty() ? nullptr : tree.masks[node_idx]};
}

// The idea of speculative decoding, whole: the target's draws decide the tokens, and the tree only decides which rows
// are there to draw from. Any tree gives the same tokens; a good tree gives more of them per step.
AcceptedPath WalkByKeyedDraw(const AcceptTreesArgs& args, const TreeToAccept& tree) {
  AcceptedPath path;
  std::optional<int32_t> node_idx = 0;
  for (uint32_t t = tree.context_len; node_idx.has_value(); ++t) {
    const RowDraw draw = DrawRow(RowOf(args, tree, *node_idx, path.token_ids), t);
    path.status = draw.status;
    if (draw.status != DrawStatus::kOk) break;
    path.node_idx.push_back(*node_idx);
    path.token_ids.push_back(draw.token_id);
    node_idx = FindChild(tree, *node_idx, draw.token_id);
  }
  return path;
}

AcceptedPath WalkWithCoins(const AcceptTreesArgs& args, const TreeToAccept& tree) {
  AcceptedPath path;
  KeyedCoins coins(tree.sampling.coin_key(), tree.sampling.sample_index);
  const auto rows = [&](int32_t node_idx, std::span<const int32_t> path_token_ids) {
    return TargetWeights(RowOf(args, tree, node_idx, path_token_ids));
  };
  WalkByRejection(tree, rows, coins, path);
  return path;
}

AcceptedPath Walk(const AcceptTreesArgs& args, const TreeToAccept& tree) {
  AcceptedPath path =
      tree.rule == VerificationRule::kKeyedDraw ? WalkByKeyedDraw(args, tree) : WalkWithCoins(args, tree);
  if (tree.num_top_logprobs.has_value()) {
    for (size_t i = 0; i < path.token_ids.size(); ++i) {
      const std::span<const float> logits = WholeRow(args, tree, path.node_idx[i]);
      path.logprobs.push_back(ScoreRow(logits, path.token_ids[i], *tree.num_top_logprobs));
    }
  }
  return path;
}

void CheckTree(const AcceptTreesArgs& args, const TreeToAccept& tree) {
  const auto num_nodes = static_cast<int32_t>(tree.parents.size());
  FT_CHECK(num_nodes > 0 && tree.token_ids.size() == tree.parents.size());
  FT_CHECK(tree.masks.empty() || tree.masks.size() == tree.parents.size());
  const int32_t num_rows = tree.rule == VerificationRule::kKeyedDraw ? num_nodes : tree.num_rows;
  FT_CHECK(num_rows > 0 && num_rows <= num_nodes);
  FT_CHECK(int64_t{tree.first_logit_row} + num_rows <= args.logits.shape[0]);
  for (const DrawnChildren& drawn : tree.drawn) {
    FT_CHECK(drawn.parent < num_rows && drawn.draft_token_ids.size() == drawn.draft_probs.size());
    for (const int32_t child : drawn.children) {
      FT_CHECK(child > drawn.parent && child < num_nodes && tree.token_ids[child] < args.num_tokens);
    }
  }
}

}  // namespace

void AcceptTrees(const AcceptTreesArgs& args, ThreadPool& pool) {
  FT_CHECK(args.logits.dtype == DType::kF32 && args.num_tokens > 0 && args.num_tokens <= args.logits.shape[1]);
  FT_CHECK(args.paths.size() == args.trees.size());
  pool.ParallelFor(static_cast<int64_t>(args.trees.size()), [&](int64_t i, int) {
    const TreeToAccept& tree = args.trees[i];
    CheckTree(args, tree);
    args.paths[i] = Walk(args, tree);
  });
}

}  // namespace foretoken::kernels::cpu
