// SPDX-License-Identifier: Apache-2.0
// One block per (128 outputs, at most 64 rows, split). It has four warps, each for 32 of the outputs and all rows, so
// that a row's inputs in shared memory serve four warps and each load of them serves two matrix steps. With more than
// 32 rows the four warps multiply together, if the GPU has such an instruction. Bytes moved: the weight once, in order,
// with three slices of 16 KiB (bf16) or five of 8 KiB (e4m3, int8) or 4 KiB (int4) in flight per block; the rows once
// per 128 outputs, from the second-level cache, at 64 rows half as many bytes as the weight's. The rows are padded to
// 8, 16, 32 or 64. With 8 a step costs little beside the weight's bytes. Splits meet in memory (split_sums.cuh).
#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/base/stream_scratch.h"
#include "kernels/cuda/matmul/matmul_skinny.h"
#include "kernels/cuda/matmul/matmul_tile.cuh"
#include "kernels/cuda/matmul/split_sums.cuh"
#include "kernels/cuda/matmul/weight.h"

namespace foretoken::kernels::cuda {
namespace {

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 2) MultiplySkinny(Product product, SplitSums splits) {
  const int32_t num_splits = product.numeric_class.num_splits;
  const int64_t row_tile = blockIdx.y / num_splits;
  ProductTile<Shape> tile(product, int64_t{blockIdx.x}, row_tile * Shape::kRows);
  MultiplySplit(tile, row_tile * gridDim.x + blockIdx.x, static_cast<int32_t>(blockIdx.y) % num_splits, num_splits,
                splits);
}

template <WeightFormat kFormat, int kRowFragments, MatrixUnit kUnit = MatrixUnit::kWarps>
void LaunchSkinny(const Product& product, uint32_t* arrivals, cudaStream_t stream) {
  using Shape = SkinnyShape<kFormat, kRowFragments, kUnit>;
  static_assert(Shape::kRows <= kSkinnyRows);
  const auto tiles_along = [](int64_t count, int tile) { return static_cast<unsigned>((count + tile - 1) / tile); };
  const auto output_tiles = static_cast<unsigned>(product.weight.num_panels());
  const unsigned row_tiles = tiles_along(product.num_rows, Shape::kRows);
  const unsigned num_splits = product.numeric_class.num_splits;
  const LaunchShape launch{.grid = dim3(output_tiles, row_tiles * num_splits),
                           .block = dim3(Shape::kThreads),
                           .shared_bytes = Shape::kSharedBytes,
                           .stream = stream};
  if (num_splits == 1) {
    FT_CUDA_CHECK(Launch(MultiplySkinny<Shape>, launch, product, SplitSums{}));
    return;
  }
  FT_CHECK(output_tiles * row_tiles <= kMaxArrivals);
  const size_t split_bytes = size_t{kPanelOutputs} * Shape::kRows * sizeof(float);
  const StreamScratch scratch(output_tiles * row_tiles * num_splits * split_bytes, stream);
  const SplitSums splits{.sums = static_cast<float4*>(scratch.data()), .arrivals = arrivals};
  FT_CUDA_CHECK(Launch(MultiplySkinny<Shape>, launch, product, splits));
}

template <WeightFormat kFormat>
void LaunchForRows(const Product& product, MatrixUnit unit, uint32_t* arrivals, cudaStream_t stream) {
  if (product.num_rows <= 8) {
    LaunchSkinny<kFormat, 1>(product, arrivals, stream);
  } else if (product.num_rows <= 16) {
    LaunchSkinny<kFormat, 2>(product, arrivals, stream);
  } else if (product.num_rows <= 32) {
    LaunchSkinny<kFormat, 4>(product, arrivals, stream);
  } else {
    if constexpr (kFormat != WeightFormat::kE4m3) {
      if (unit == MatrixUnit::kGroups) return LaunchSkinny<kFormat, 8, MatrixUnit::kGroups>(product, arrivals, stream);
    }
    LaunchSkinny<kFormat, 8>(product, arrivals, stream);
  }
}

}  // namespace

void MatMulSkinny(const MatMulArgs& args, MatrixUnit unit, cudaStream_t stream) {
  if (args.x.shape[0] == 0) return;
  const CudaWeight& weight = AsCudaWeight(args.weight);
  switch (weight.packed().format) {
    case WeightFormat::kBf16:
      return LaunchForRows<WeightFormat::kBf16>(ProductOf(args), unit, weight.arrivals(), stream);
    case WeightFormat::kInt8:
      return LaunchForRows<WeightFormat::kInt8>(ProductOf(args), unit, weight.arrivals(), stream);
    case WeightFormat::kInt4:
      return LaunchForRows<WeightFormat::kInt4>(ProductOf(args), unit, weight.arrivals(), stream);
    case WeightFormat::kE4m3:
      break;
  }
  const QuantizedRows rows(args.x, stream);
  LaunchForRows<WeightFormat::kE4m3>(ProductOf(args, rows), unit, weight.arrivals(), stream);
}

}  // namespace foretoken::kernels::cuda
