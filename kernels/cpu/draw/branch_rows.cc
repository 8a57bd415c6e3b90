// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/draw/branch_rows.h"

#include <span>

#include "kernels/check.h"
#include "kernels/cpu/base/parallel_rows.h"
#include "kernels/cpu/draw/adjust_row.h"
#include "kernels/cpu/draw/draw_row.h"

namespace foretoken::kernels::cpu {

void BranchRows(const BranchRowsArgs& args, ThreadPool& pool) {
  FT_CHECK(args.logits.dtype == DType::kF32 && args.num_tokens > 0 && args.num_tokens <= args.logits.shape[1]);
  FT_CHECK(args.children.size() == args.rows.size());
  ParallelForRows(static_cast<int64_t>(args.rows.size()), args.num_tokens, pool, [&](int64_t i) {
    const RowToBranch& row = args.rows[i];
    FT_CHECK(row.logit_row >= 0 && row.logit_row < args.logits.shape[0] && row.num_children > 0);
    const std::span given(args.logits.as<float>() + row.logit_row * args.logits.shape[1], args.num_tokens);
    const SamplingParams no_penalties;
    const std::span<const float> logits =
        AdjustRow({.logits = given, .sampling = no_penalties, .bias = {}, .counts = {}, .mask = row.mask});
    args.children[i] = row.order == BranchOrder::kKeyedDraw
                           ? DrawTopTokens(logits, row.sampling, row.t, row.num_children)
                           : TopDraftProbs(logits, row.sampling, row.num_children);
  });
}

}  // namespace foretoken::kernels::cpu
