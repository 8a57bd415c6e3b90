// SPDX-License-Identifier: Apache-2.0
// Bytes moved: every piece once, the output once or twice. Columns of a row are independent, so the compiler may
// vectorise over them without a change of any sum.
#include "kernels/cpu/sum_ranks.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cpu/base/parallel_rows.h"
#include "kernels/cpu/base/workspace.h"

namespace foretoken::kernels::cpu {

void SumRanks(const SumRanksArgs& args, ThreadPool& pool) {
  const int64_t num_ranks = args.pieces.shape[0];
  const int64_t num_rows = args.out.shape[0];
  const int64_t num_columns = args.out.shape[1];
  FT_CHECK(args.pieces.dtype == DType::kF32 && args.out.dtype == DType::kF32 && num_ranks > 0);
  FT_CHECK(args.pieces.shape == Shape(num_ranks, num_rows, num_columns));
  ParallelForRows(num_rows, num_ranks * num_columns, pool, [&](int64_t row) {
    const float* piece = args.pieces.as<float>() + row * num_columns;
    float* sums = ThreadWorkspace<float>(num_columns);
    std::copy_n(piece, num_columns, sums);
    for (int64_t rank = 1; rank < num_ranks; ++rank) {
      piece += num_rows * num_columns;
      for (int64_t i = 0; i < num_columns; ++i) sums[i] += piece[i];
    }
    float* out = args.out.as<float>() + row * num_columns;
    if (args.mode == OutputMode::kAdd) {
      for (int64_t i = 0; i < num_columns; ++i) out[i] += sums[i] * args.scale;
    } else {
      for (int64_t i = 0; i < num_columns; ++i) out[i] = sums[i] * args.scale;
    }
  });
}

}  // namespace foretoken::kernels::cpu
