// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/join_columns.h"

#include <algorithm>
#include <numeric>

#include "kernels/check.h"
#include "kernels/cpu/base/parallel_rows.h"

namespace foretoken::kernels::cpu {

void JoinColumns(const JoinColumnsArgs& args, ThreadPool& pool) {
  const int64_t num_rows = args.out.shape[0];
  const int64_t num_columns = args.out.shape[1];
  FT_CHECK(args.out.dtype == DType::kF32);
  FT_CHECK(std::accumulate(args.widths.begin(), args.widths.end(), int64_t{0}) == num_columns);
  FT_CHECK(num_rows * *std::max_element(args.widths.begin(), args.widths.end()) <= args.piece_elements);
  ParallelForRows(num_rows, num_columns, pool, [&](int64_t row) {
    float* out = args.out.as<float>() + row * num_columns;
    const float* piece = args.pieces;
    for (const int64_t width : args.widths) {
      out = std::copy_n(piece + row * width, width, out);
      piece += args.piece_elements;
    }
  });
}

}  // namespace foretoken::kernels::cpu
