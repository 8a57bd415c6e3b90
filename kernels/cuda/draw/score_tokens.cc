// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/draw/score_tokens.h"

#include <vector>

#include "kernels/check.h"
#include "kernels/cuda/draw/score_rows.h"

namespace foretoken::kernels::cuda {

void ScoreTokens(const ScoreTokensArgs& args, Device& device) {
  const int64_t width = args.logits.shape[1];
  FT_CHECK(args.logits.dtype == DType::kF32 && width > 0);
  FT_CHECK(args.scores.size() == args.token_ids.size());
  FT_CHECK(args.first_row + static_cast<int64_t>(args.token_ids.size()) <= args.logits.shape[0]);
  if (args.token_ids.empty()) return;
  StagedUpload upload;
  const int32_t* token_ids = nullptr;
  upload.Add(args.token_ids, &token_ids);
  upload.Send(device);
  std::vector<RowToScore> rows;
  for (size_t i = 0; i < args.token_ids.size(); ++i) {
    FT_CHECK(args.token_ids[i] >= 0 && args.token_ids[i] < width);
    const float* logits = args.logits.as<float>() + (args.first_row + static_cast<int64_t>(i)) * width;
    rows.push_back({.logits = logits, .token_id = token_ids + i, .num_top = args.num_top});
  }
  device.AtSynchronize([scores = RowScores(rows, static_cast<int32_t>(width), device), out = args.scores] {
    for (size_t i = 0; i < out.size(); ++i) out[i] = scores.OfRow(i);
  });
}

}  // namespace foretoken::kernels::cuda
