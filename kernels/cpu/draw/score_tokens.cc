// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/draw/score_tokens.h"

#include "kernels/check.h"
#include "kernels/cpu/draw/score_row.h"

namespace foretoken::kernels::cpu {

void ScoreTokens(const ScoreTokensArgs& args, ThreadPool& pool) {
  const int64_t width = args.logits.shape[1];
  FT_CHECK(args.logits.dtype == DType::kF32 && width > 0);
  FT_CHECK(args.scores.size() == args.token_ids.size());
  FT_CHECK(args.first_row + static_cast<int64_t>(args.token_ids.size()) <= args.logits.shape[0]);
  pool.ParallelFor(static_cast<int64_t>(args.token_ids.size()), [&](int64_t i, int) {
    const std::span row(args.logits.as<float>() + (args.first_row + i) * width, width);
    args.scores[i] = ScoreRow(row, args.token_ids[i], args.num_top);
  });
}

}  // namespace foretoken::kernels::cpu
