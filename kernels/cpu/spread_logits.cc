// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/spread_logits.h"

#include <algorithm>
#include <limits>

#include "kernels/check.h"
#include "kernels/cpu/base/parallel_rows.h"

namespace foretoken::kernels::cpu {

void SpreadLogits(const SpreadLogitsArgs& args, ThreadPool& pool) {
  const int64_t num_known = args.logits.shape[1], num_ids = args.out.shape[1];
  FT_CHECK(args.logits.dtype == DType::kF32 && args.out.dtype == DType::kF32 && num_known <= num_ids &&
           args.logits.shape[0] == args.out.shape[0]);
  ParallelForRows(args.out.shape[0], num_ids, pool, [&](int64_t row) {
    const float* logits = args.logits.as<float>() + row * num_known;
    float* out = args.out.as<float>() + row * num_ids;
    std::fill_n(out, num_ids, -std::numeric_limits<float>::infinity());
    for (int64_t i = 0; i < num_known; ++i) out[args.token_ids[i]] = logits[i];
  });
}

}  // namespace foretoken::kernels::cpu
