// SPDX-License-Identifier: Apache-2.0
// One block per (128 outputs, at most 64 rows, split). It has four warps, each for 32 of the outputs and all rows, so
// that a row's inputs in shared memory serve four warps and each load of them serves two matrix steps. With more than
// 32 rows the four warps multiply together, if the GPU has such an instruction. Bytes moved: the weight once, in order,
// with three slices of 16 KiB (bf16) or five of 8 KiB (e4m3, int8) or 4 KiB (int4) in flight per block; the rows once
// per 128 outputs, from the second-level cache, at 64 rows half as many bytes as the weight's. The rows are padded to
// 8, 16, 32 or 64. With 8 a step costs little beside the weight's bytes.
//
// A split's sums go to memory in the layout of the threads' registers, 16 bytes per fragment and thread side by side.
// The block that arrives last at its tile reads the sums of all splits and adds them in order. It reads back its own
// sums too, so it does not matter which block is last.
#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/base/stream_scratch.h"
#include "kernels/cuda/matmul/matmul_skinny.h"
#include "kernels/cuda/matmul/matmul_tile.cuh"
#include "kernels/cuda/matmul/weight.h"

namespace foretoken::kernels::cuda {
namespace {

template <WeightFormat kFormat, int kRowFragments, MatrixUnit kUnit>
using SkinnyShape = TileShape<kFormat, 4, 1, 2, kRowFragments, kFormat == WeightFormat::kBf16 ? 4 : 6, kUnit>;

// The memory for the sums of splits, and a count of arrived blocks per tile. Null if the weight has one split.
struct SplitSums {
  float4* sums = nullptr;        // [tiles, splits, fragments, threads]
  uint32_t* arrivals = nullptr;  // [tiles]
};

// The sums of the block's tile.
template <typename Shape>
__device__ float4* SumsOfSplit(const SplitSums& splits, int64_t tile, int64_t num_splits, int64_t split) {
  constexpr int kFragments = Shape::kOutputFragments * Shape::kRowFragments;
  return splits.sums + (tile * num_splits + split) * kFragments * Shape::kThreads + threadIdx.x;
}

// True, for all threads of the block, if the block is the last of its tile.
__device__ bool ArrivesLast(uint32_t* arrivals, uint32_t num_splits) {
  __shared__ bool is_last;
  __threadfence();  // other blocks see this thread's sums before the count
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(arrivals, 1u) == num_splits - 1;
    if (is_last) *arrivals = 0;  // for the next product
  }
  __syncthreads();
  __threadfence();
  return is_last;
}

// A thread starts to read the next split's sums before it adds those of the present split.
template <typename Shape, typename Sums>
__device__ void AddSplits(const SplitSums& splits, int64_t tile, int32_t num_splits, Sums& sums) {
  constexpr int kFragments = Shape::kOutputFragments * Shape::kRowFragments;
  float4 next[kFragments];
  const auto read = [&](int32_t split) {
    const float4* from = SumsOfSplit<Shape>(splits, tile, num_splits, split);
#pragma unroll
    for (int i = 0; i < kFragments; ++i) next[i] = __ldcg(from + i * Shape::kThreads);
  };
  read(0);
  for (int32_t split = 0; split < num_splits; ++split) {
    float4 now[kFragments];
#pragma unroll
    for (int i = 0; i < kFragments; ++i) now[i] = next[i];
    if (split + 1 < num_splits) read(split + 1);
#pragma unroll
    for (int i = 0; i < Shape::kOutputFragments; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::kRowFragments; ++j) {
        const float4& more = now[i * Shape::kRowFragments + j];
        float(&sum)[4] = sums[i][j].sums;
        sum[0] = split == 0 ? more.x : sum[0] + more.x;
        sum[1] = split == 0 ? more.y : sum[1] + more.y;
        sum[2] = split == 0 ? more.z : sum[2] + more.z;
        sum[3] = split == 0 ? more.w : sum[3] + more.w;
      }
    }
  }
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 2) MultiplySplit(Product product, SplitSums splits) {
  const int32_t num_splits = product.numeric_class.num_splits;
  const auto split = static_cast<int32_t>(blockIdx.y) % num_splits;
  const int64_t row_tile = blockIdx.y / num_splits, tile = row_tile * gridDim.x + blockIdx.x;
  ProductTile<Shape> block(product, int64_t{blockIdx.x}, row_tile * Shape::kRows);
  using Sums = typename ProductTile<Shape>::Sums;
  block.MultiplySplits(split, split + 1, [&](int32_t, Sums& sums) {
    if (num_splits > 1) {
      float4* to = SumsOfSplit<Shape>(splits, tile, num_splits, split);
#pragma unroll
      for (int i = 0; i < Shape::kOutputFragments; ++i) {
#pragma unroll
        for (int j = 0; j < Shape::kRowFragments; ++j) {
          const float(&sum)[4] = sums[i][j].sums;
          to[(i * Shape::kRowFragments + j) * Shape::kThreads] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        }
      }
      if (!ArrivesLast(splits.arrivals + tile, num_splits)) return;
      AddSplits<Shape>(splits, tile, num_splits, sums);
    }
    block.Store(sums);
  });
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
    FT_CUDA_CHECK(Launch(MultiplySplit<Shape>, launch, product, SplitSums{}));
    return;
  }
  FT_CHECK(output_tiles * row_tiles <= kMaxArrivals);
  const size_t split_bytes = size_t{kPanelOutputs} * Shape::kRows * sizeof(float);
  const StreamScratch scratch(output_tiles * row_tiles * num_splits * split_bytes, stream);
  const SplitSums splits{.sums = static_cast<float4*>(scratch.data()), .arrivals = arrivals};
  FT_CUDA_CHECK(Launch(MultiplySplit<Shape>, launch, product, splits));
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
