// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/accept_trees.h"

#include <optional>
#include <span>

#include "kernels/check.h"
#include "kernels/cpu/draw_row.h"
#include "kernels/cpu/score_row.h"

namespace foretoken::kernels::cpu {
namespace {

// Of equal siblings, which a merged tree does not have, the first.
std::optional<int32_t> FindChild(const TreeToAccept& tree, int32_t node_idx, int32_t token_id) {
  for (size_t child = node_idx + 1; child < tree.parents.size(); ++child) {
    if (tree.parents[child] == node_idx && tree.token_ids[child] == token_id) return static_cast<int32_t>(child);
  }
  return std::nullopt;
}

// The idea of speculative decoding, whole: what the target draws decides, the tree only says which rows are there to
// draw from. Any tree gives the same tokens; a good one gives more of them at once.
AcceptedPath Walk(const AcceptTreesArgs& args, const TreeToAccept& tree) {
  AcceptedPath path;
  std::optional<int32_t> node_idx = 0;
  for (uint32_t t = tree.context_len; node_idx.has_value(); ++t) {
    const int64_t row = tree.first_logit_row + *node_idx;
    const std::span logits(args.logits.as<float>() + row * args.logits.shape[1], args.num_tokens);
    const RowDraw draw = DrawRow({.logits = logits,
                                  .sampling = tree.sampling,
                                  .bias = tree.bias,
                                  .counts = tree.counts,
                                  .path_token_ids = path.token_ids,
                                  .mask = tree.masks.empty() ? nullptr : tree.masks[*node_idx]},
                                 t);
    path.status = draw.status;
    if (draw.status != DrawStatus::kOk) break;
    path.node_idx.push_back(*node_idx);
    path.token_ids.push_back(draw.token_id);
    if (tree.num_top_logprobs.has_value()) {
      path.logprobs.push_back(ScoreRow(logits, draw.token_id, *tree.num_top_logprobs));
    }
    node_idx = FindChild(tree, *node_idx, draw.token_id);
  }
  return path;
}

}  // namespace

void AcceptTrees(const AcceptTreesArgs& args, ThreadPool& pool) {
  FT_CHECK(args.logits.dtype == DType::kF32 && args.num_tokens > 0 && args.num_tokens <= args.logits.shape[1]);
  FT_CHECK(args.paths.size() == args.trees.size());
  pool.ParallelFor(static_cast<int64_t>(args.trees.size()), [&](int64_t i, int) {
    const TreeToAccept& tree = args.trees[i];
    FT_CHECK(!tree.parents.empty() && tree.token_ids.size() == tree.parents.size());
    FT_CHECK(tree.masks.empty() || tree.masks.size() == tree.parents.size());
    FT_CHECK(tree.first_logit_row + static_cast<int64_t>(tree.parents.size()) <= args.logits.shape[0]);
    args.paths[i] = Walk(args, tree);
  });
}

}  // namespace foretoken::kernels::cpu
