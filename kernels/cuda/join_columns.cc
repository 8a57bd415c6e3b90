// SPDX-License-Identifier: Apache-2.0
// One copy of rows with a pitch per rank: the copy engine does it, and no kernel.
#include "kernels/cuda/join_columns.h"

#include <algorithm>
#include <numeric>

#include "kernels/check.h"
#include "kernels/cuda/base/check.h"

namespace foretoken::kernels::cuda {

void JoinColumns(const JoinColumnsArgs& args, cudaStream_t stream) {
  const int64_t num_rows = args.out.shape[0];
  const int64_t num_columns = args.out.shape[1];
  FT_CHECK(args.out.dtype == DType::kF32);
  FT_CHECK(std::accumulate(args.widths.begin(), args.widths.end(), int64_t{0}) == num_columns);
  FT_CHECK(num_rows * *std::max_element(args.widths.begin(), args.widths.end()) <= args.piece_elements);
  float* out = args.out.as<float>();
  const float* piece = args.pieces;
  for (const int64_t width : args.widths) {
    const size_t row_bytes = width * sizeof(float);
    FT_CUDA_CHECK(cudaMemcpy2DAsync(out, num_columns * sizeof(float), piece, row_bytes, row_bytes, num_rows,
                                    cudaMemcpyDeviceToDevice, stream));
    out += width;
    piece += args.piece_elements;
  }
}

}  // namespace foretoken::kernels::cuda
