// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "kernels/check.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/matmul/matmul_skinny.h"
#include "kernels/cuda/matmul/matmul_tile.cuh"
#include "kernels/cuda/matmul/matmul_tiled.h"
#include "kernels/cuda/matmul/weight.h"

namespace foretoken::kernels::cuda {
namespace {

int64_t CeilDiv(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

}  // namespace

ProductRows RowsOf(const ConstTensorView& x) {
  constexpr int64_t kCopyBytes = 16;
  const int64_t row_bytes = x.shape[1] * static_cast<int64_t>(sizeof(uint16_t));
  return {.data = x.as<uint8_t>(),
          .row_bytes = row_bytes,
          .is_aligned = reinterpret_cast<uintptr_t>(x.data) % kCopyBytes == 0 && row_bytes % kCopyBytes == 0};
}

ProductRows RowsOf(const QuantizedRows& rows) {
  return {.data = rows.codes(), .row_bytes = rows.row_bytes(), .is_aligned = true, .scales = rows.scales()};
}

Product ProductOf(const MatMulArgs& args) {
  const CudaWeight& weight = AsCudaWeight(args.weight);
  const int64_t num_rows = args.x.shape[0];
  FT_CHECK(args.x.dtype == DType::kBF16 && args.x.shape[1] == weight.in_features());
  FT_CHECK(args.out.dtype == DType::kF32 && args.out.shape == Shape(num_rows, weight.out_features()));
  return {.weight = weight.packed(),
          .numeric_class = weight.numeric_class(),
          .rows = RowsOf(args.x),
          .num_rows = num_rows,
          .bias = args.bias,
          .mode = args.mode,
          .out = args.out.as<float>()};
}

Product ProductOf(const MatMulArgs& args, const QuantizedRows& rows) {
  Product product = ProductOf(args);
  product.rows = RowsOf(rows);
  return product;
}

void MatMul(const MatMulArgs& args, cudaStream_t stream) {
  const int64_t num_rows = args.x.shape[0];
  const CudaWeight& weight = AsCudaWeight(args.weight);
  const int64_t num_tiles = weight.packed().num_panels() * CeilDiv(num_rows, kTiledRows);
  if (num_rows <= kSkinnyRows || num_tiles < kMinTiles) {
    MatMulSkinny(args, weight.matrix_unit(), stream);
  } else {
    MatMulTiled(args, weight.matrix_unit(), stream);
  }
}

}  // namespace foretoken::kernels::cuda
