// SPDX-License-Identifier: Apache-2.0
// One block of eight warps per tile of 128 outputs by 256 rows, if the weight has one split. Its sums take 128
// registers of each thread. If splits must be added, a thread also holds their sum so far, so a tile has fewer rows.
// The shared memory for three to six slices leaves room for one block per multiprocessor.
//
// By warps: two warps along the outputs and four along the rows. A byte read from shared memory serves 32
// multiplications. By groups: two groups of four warps, each for 64 of the outputs and all rows.
//
// Bytes moved: the weight once per tile of rows, the rows once per tile of outputs. Blocks that run together form
// patches of the output, eight tiles of rows high, so that most of these bytes come from the second-level cache.
#include <algorithm>

#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/matmul/matmul_tile.cuh"
#include "kernels/cuda/matmul/matmul_tiled.h"
#include "kernels/cuda/matmul/split_sums.cuh"
#include "kernels/cuda/matmul/weight.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int64_t kPatchRowTiles = 8;

// The short shapes by warps fit the shared memory of every GPU that we serve. The tall one does not, and GPUs with
// groups have room for theirs.
template <WeightFormat kFormat, MatrixUnit kUnit>
struct Shapes {
  static constexpr int kStages = kFormat == WeightFormat::kE4m3 ? 6 : 3;
  using Short = TileShape<kFormat, 2, 4, 4, 4, kStages>;
  using Tall = TileShape<kFormat, 2, 4, 4, 8, kStages>;
};
template <WeightFormat kFormat>
struct Shapes<kFormat, MatrixUnit::kGroups> {
  using Short = TileShape<kFormat, 8, 1, 1, 24, 5, MatrixUnit::kGroups>;
  using Tall = TileShape<kFormat, 8, 1, 1, 32, 4, MatrixUnit::kGroups>;
};
constexpr int kTallRows = 256;
static_assert(Shapes<WeightFormat::kBf16, MatrixUnit::kWarps>::Short::kRows == kTiledRows);

// blockIdx: (tile of outputs and tile of rows within a patch, patch).
template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) MultiplyTiled(Product product, int64_t patch_row_tiles) {
  const int64_t row_tile = blockIdx.y * patch_row_tiles + blockIdx.x % patch_row_tiles;
  if (row_tile * Shape::kRows >= product.num_rows) return;
  ProductTile<Shape> tile(product, blockIdx.x / patch_row_tiles, row_tile * Shape::kRows);
  if constexpr (Shape::kRows == kTallRows) {
    tile.MultiplySplits(0, 1, [&](int32_t, const auto& sums) { tile.Store(sums); });
  } else {
    MultiplyTile(tile, product.numeric_class.num_splits);
  }
}

template <typename Shape>
void LaunchTiles(const Product& product, cudaStream_t stream) {
  const int64_t row_tiles = (product.num_rows + Shape::kRows - 1) / Shape::kRows;
  const int64_t patch_row_tiles = std::min(row_tiles, kPatchRowTiles);
  const dim3 grid(static_cast<unsigned>(product.weight.num_panels() * patch_row_tiles),
                  static_cast<unsigned>((row_tiles + patch_row_tiles - 1) / patch_row_tiles));
  FT_CUDA_CHECK(
      Launch(MultiplyTiled<Shape>,
             {.grid = grid, .block = dim3(Shape::kThreads), .shared_bytes = Shape::kSharedBytes, .stream = stream},
             product, patch_row_tiles));
}

bool HasSharedMemory(size_t num_bytes) {
  int device = 0, max_bytes = 0;
  FT_CUDA_CHECK(cudaGetDevice(&device));
  FT_CUDA_CHECK(cudaDeviceGetAttribute(&max_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return num_bytes <= static_cast<size_t>(max_bytes);
}

template <WeightFormat kFormat, MatrixUnit kUnit>
void LaunchForRows(const Product& product, cudaStream_t stream) {
  using Short = typename Shapes<kFormat, kUnit>::Short;
  using Tall = typename Shapes<kFormat, kUnit>::Tall;
  const bool is_tall = product.numeric_class.num_splits == 1 && product.num_rows > Short::kRows;
  if (is_tall && HasSharedMemory(Tall::kSharedBytes)) {
    LaunchTiles<Tall>(product, stream);
  } else {
    LaunchTiles<Short>(product, stream);
  }
}

template <WeightFormat kFormat>
void LaunchOn(MatrixUnit unit, const Product& product, cudaStream_t stream) {
  if (unit == MatrixUnit::kGroups) return LaunchForRows<kFormat, MatrixUnit::kGroups>(product, stream);
  LaunchForRows<kFormat, MatrixUnit::kWarps>(product, stream);
}

}  // namespace

void MatMulTiled(const MatMulArgs& args, MatrixUnit unit, cudaStream_t stream) {
  if (args.x.shape[0] == 0) return;
  switch (AsCudaWeight(args.weight).packed().format) {
    case WeightFormat::kBf16:
      return LaunchOn<WeightFormat::kBf16>(unit, ProductOf(args), stream);
    case WeightFormat::kInt8:
      return LaunchOn<WeightFormat::kInt8>(unit, ProductOf(args), stream);
    case WeightFormat::kInt4:
      return LaunchOn<WeightFormat::kInt4>(unit, ProductOf(args), stream);
    case WeightFormat::kE4m3:
      break;
  }
  const QuantizedRows rows(args.x, stream);
  LaunchForRows<WeightFormat::kE4m3, MatrixUnit::kWarps>(ProductOf(args, rows), stream);
}

}  // namespace foretoken::kernels::cuda
