// SPDX-License-Identifier: Apache-2.0
// One block per tile of 128 outputs by 128 rows, or by 256 if the weight has one split. It has eight warps, two along
// the outputs and four along the rows. A warp's 64 by 64 sums take 128 registers of each thread, and a byte read from
// shared memory serves 32 multiplications. If splits must be added, a thread also holds their sum so far, so a warp has
// half the rows. Slices of 32 or 48 KiB, three at a time, leave room for one block per multiprocessor. In e4m3 they are
// half as large, six at a time.
//
// Bytes moved: the weight once per tile of rows, the rows once per tile of outputs. Blocks that run together form
// patches of the output, eight tiles of rows high, so that most of these bytes come from the second-level cache.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/matmul/matmul_tile.cuh"
#include "kernels/cuda/matmul/matmul_tiled.h"
#include "kernels/cuda/matmul/weight.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int64_t kPatchRowTiles = 8;

// It fits the shared memory of every GPU that we serve; the tall shape does not.
template <WeightFormat kFormat>
using ShortShape = TileShape<kFormat, 2, 4, 4, 4, kFormat == WeightFormat::kE4m3 ? 6 : 3>;
template <WeightFormat kFormat>
using TallShape = TileShape<kFormat, 2, 4, 4, 8, kFormat == WeightFormat::kE4m3 ? 6 : 3>;
static_assert(ShortShape<WeightFormat::kBf16>::kRows == kTiledRows);

// Adds a split's sums to the sum of the splits before it.
template <typename Sums>
__device__ void AddSplit(int32_t split, const Sums& sums, Sums& total) {
#pragma unroll
  for (int i = 0; i < std::extent_v<Sums, 0>; ++i) {
#pragma unroll
    for (int j = 0; j < std::extent_v<Sums, 1>; ++j) {
#pragma unroll
      for (int element = 0; element < 4; ++element) {
        const float sum = sums[i][j].sums[element];
        total[i][j].sums[element] = split == 0 ? sum : total[i][j].sums[element] + sum;
      }
    }
  }
}

// blockIdx: (tile of outputs and tile of rows within a patch, patch).
template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) MultiplyTile(Product product, int64_t patch_row_tiles) {
  using Tile = ProductTile<Shape>;
  using Sums = typename Tile::Sums;
  const int64_t row_tile = blockIdx.y * patch_row_tiles + blockIdx.x % patch_row_tiles;
  if (row_tile * Shape::kRows >= product.num_rows) return;
  Tile tile(product, blockIdx.x / patch_row_tiles, row_tile * Shape::kRows);
  if constexpr (Shape::kRows > kTiledRows) {
    tile.MultiplySplits(0, 1, [&](int32_t, const Sums& sums) { tile.Store(sums); });
  } else {
    Sums total;
    tile.MultiplySplits(0, product.numeric_class.num_splits,
                        [&](int32_t split, const Sums& sums) { AddSplit(split, sums, total); });
    tile.Store(total);
  }
}

template <typename Shape>
void LaunchTiles(const Product& product, cudaStream_t stream) {
  const int64_t row_tiles = (product.num_rows + Shape::kRows - 1) / Shape::kRows;
  const int64_t patch_row_tiles = std::min(row_tiles, kPatchRowTiles);
  const dim3 grid(static_cast<unsigned>(product.weight.num_panels() * patch_row_tiles),
                  static_cast<unsigned>((row_tiles + patch_row_tiles - 1) / patch_row_tiles));
  FT_CUDA_CHECK(
      Launch(MultiplyTile<Shape>,
             {.grid = grid, .block = dim3(Shape::kThreads), .shared_bytes = Shape::kSharedBytes, .stream = stream},
             product, patch_row_tiles));
}

bool HasSharedMemory(size_t num_bytes) {
  int device = 0, max_bytes = 0;
  FT_CUDA_CHECK(cudaGetDevice(&device));
  FT_CUDA_CHECK(cudaDeviceGetAttribute(&max_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return num_bytes <= static_cast<size_t>(max_bytes);
}

template <WeightFormat kFormat>
void LaunchForRows(const Product& product, cudaStream_t stream) {
  const bool is_tall = product.numeric_class.num_splits == 1 && product.num_rows > kTiledRows;
  if (is_tall && HasSharedMemory(TallShape<kFormat>::kSharedBytes)) {
    LaunchTiles<TallShape<kFormat>>(product, stream);
  } else {
    LaunchTiles<ShortShape<kFormat>>(product, stream);
  }
}

}  // namespace

void MatMulTiled(const MatMulArgs& args, cudaStream_t stream) {
  if (args.x.shape[0] == 0) return;
  switch (AsCudaWeight(args.weight).packed().format) {
    case WeightFormat::kBf16:
      return LaunchForRows<WeightFormat::kBf16>(ProductOf(args), stream);
    case WeightFormat::kInt8:
      return LaunchForRows<WeightFormat::kInt8>(ProductOf(args), stream);
    case WeightFormat::kInt4:
      return LaunchForRows<WeightFormat::kInt4>(ProductOf(args), stream);
    case WeightFormat::kE4m3:
      break;
  }
  const QuantizedRows rows(args.x, stream);
  LaunchForRows<WeightFormat::kE4m3>(ProductOf(args, rows), stream);
}

}  // namespace foretoken::kernels::cuda
