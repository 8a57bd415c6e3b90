// SPDX-License-Identifier: Apache-2.0
// A block has a tile and 128 outputs, as in a product of few rows (matmul_skinny.cu). It computes all splits, one after
// another. If that leaves a GPU idle, a block computes one split, and splits meet in memory (split_sums.cuh). A block
// finds its matrix and its rows by its tile. Bytes moved: a matrix once per tile of its rows; blocks that run
// together have the same outputs, so the tiles of one matrix read it from the second-level cache. Where members have
// several formats there is a launch for each, whose blocks leave the tiles of the others alone.
#include <algorithm>
#include <limits>

#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/base/stream_scratch.h"
#include "kernels/cuda/matmul/matmul_grouped.h"
#include "kernels/cuda/matmul/matmul_tile.cuh"
#include "kernels/cuda/matmul/matmul_tiled.h"
#include "kernels/cuda/matmul/quantize_rows.h"
#include "kernels/cuda/matmul/split_sums.cuh"
#include "kernels/cuda/matmul/weight.h"

namespace foretoken::kernels::cuda {
namespace {

struct GroupedProduct {
  const GroupedMatrix* matrices = nullptr;
  const GroupedTile* tiles = nullptr;
  NumericClass numeric_class;
  ProductRows rows;      // of all matrices
  float* out = nullptr;  // [P, N]
};

// The rows of a tile with their matrix.
__device__ Product ProductOfTile(const GroupedProduct& grouped, const GroupedTile& tile) {
  const GroupedMatrix& matrix = grouped.matrices[tile.matrix];
  Product product;
  product.weight = matrix.weight;
  product.numeric_class = grouped.numeric_class;
  product.rows = grouped.rows;
  product.rows.data += tile.first_row * grouped.rows.row_bytes;
  if (grouped.rows.scales != nullptr) product.rows.scales += tile.first_row;
  product.num_rows = tile.num_rows;
  product.bias = matrix.bias;
  product.out = grouped.out + tile.first_row * matrix.weight.num_outputs;
  return product;
}

// What a block computes.
struct BlockPlace {
  int32_t tile = 0;
  int64_t panel = 0;
  int32_t split = 0;  // if splits are spread over blocks
};

// Blocks are counted by splits first, then by tiles, then by panels.
__device__ BlockPlace PlaceOfBlock(int32_t num_splits, int32_t num_tiles) {
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int32_t without_split = block / num_splits;
  return {.tile = without_split % num_tiles, .panel = without_split / num_tiles, .split = block % num_splits};
}

// Each way to add splits has a kernel of its own. One kernel for both would reserve the registers of both.
template <typename Shape, bool kSpreadsSplits>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    MultiplyGrouped(GroupedProduct grouped, int32_t num_tiles, SplitSums splits) {
  const int32_t num_splits = grouped.numeric_class.num_splits;
  const BlockPlace place = PlaceOfBlock(kSpreadsSplits ? num_splits : 1, num_tiles);
  const GroupedTile rows = grouped.tiles[place.tile];
  if (rows.num_rows == 0) return;
  const Product product = ProductOfTile(grouped, rows);
  if (product.weight.format != Shape::kFormat) return;
  ProductTile<Shape> tile(product, place.panel, 0);
  if constexpr (kSpreadsSplits) {
    MultiplySplit(tile, place.panel * num_tiles + place.tile, place.split, num_splits, splits);
  } else {
    MultiplyTile(tile, num_splits);
  }
}

template <WeightFormat kFormat, int kRowFragments, MatrixUnit kUnit = MatrixUnit::kWarps>
void LaunchGrouped(const GroupedProduct& product, const GroupedMatMulArgs& args, cudaStream_t stream) {
  using Shape = SkinnyShape<kFormat, kRowFragments, kUnit>;
  const int32_t num_splits = product.numeric_class.num_splits;
  const int64_t num_blocks = args.num_tiles * args.group->first().packed().num_panels();  // if no splits are spread
  FT_CHECK(num_blocks <= std::numeric_limits<int32_t>::max());
  LaunchShape launch{.grid = dim3(static_cast<unsigned>(num_blocks)),
                     .block = dim3(Shape::kThreads),
                     .shared_bytes = Shape::kSharedBytes,
                     .stream = stream};
  if (num_splits == 1 || num_blocks >= kMinTiles) {
    FT_CUDA_CHECK(Launch(MultiplyGrouped<Shape, false>, launch, product, args.num_tiles, SplitSums{}));
    return;
  }
  static_assert(kMinTiles <= kMaxArrivals);
  const size_t split_bytes = size_t{kPanelOutputs} * Shape::kRows * sizeof(float);
  const StreamScratch scratch(num_blocks * num_splits * split_bytes, stream);
  const SplitSums splits{.sums = static_cast<float4*>(scratch.data()), .arrivals = args.group->arrivals()};
  launch.grid.x *= num_splits;
  FT_CUDA_CHECK(Launch(MultiplyGrouped<Shape, true>, launch, product, args.num_tiles, splits));
}

template <WeightFormat kFormat>
void LaunchForRows(const GroupedProduct& product, const GroupedMatMulArgs& args, cudaStream_t stream) {
  switch (args.max_tile_rows) {
    case 8:
      return LaunchGrouped<kFormat, 1>(product, args, stream);
    case 16:
      return LaunchGrouped<kFormat, 2>(product, args, stream);
    case 32:
      return LaunchGrouped<kFormat, 4>(product, args, stream);
    default:
      FT_CHECK(args.max_tile_rows == 64);
  }
  if constexpr (kFormat != WeightFormat::kE4m3) {
    if (args.group->first().matrix_unit() == MatrixUnit::kGroups) {
      return LaunchGrouped<kFormat, 8, MatrixUnit::kGroups>(product, args, stream);
    }
  }
  LaunchGrouped<kFormat, 8>(product, args, stream);
}

}  // namespace

MatrixGroup::MatrixGroup(std::span<const Member> members, Device& device)
    : first_(&AsCudaWeight(members[0].weight)),
      matrices_(device.Allocate(members.size() * sizeof(GroupedMatrix))),
      arrivals_(device.Allocate(kMaxArrivals * sizeof(uint32_t))) {
  std::vector<GroupedMatrix> matrices;
  for (const Member& member : members) {
    const CudaWeight& weight = AsCudaWeight(member.weight);
    FT_CHECK(weight.out_features() == first_->out_features() && weight.in_features() == first_->in_features());
    FT_CHECK(weight.numeric_class() == first_->numeric_class());
    matrices.push_back({.weight = weight.packed(), .bias = member.bias});
    if (std::ranges::find(formats_, weight.packed().format) == formats_.end()) {
      formats_.push_back(weight.packed().format);
    }
  }
  device.Copy(matrices_.get(), matrices.data(), matrices.size() * sizeof(GroupedMatrix), CopyKind::kToDevice);
  device.Synchronize();  // the source ends with this function
}

void MatMulGrouped(const GroupedMatMulArgs& args, cudaStream_t stream) {
  const MatrixGroup& group = *args.group;
  FT_CHECK(args.x.dtype == DType::kBF16 && args.x.shape[1] == group.first().in_features());
  FT_CHECK(args.out.dtype == DType::kF32 && args.out.shape == Shape(args.x.shape[0], group.first().out_features()));
  const GroupedProduct product = {.matrices = group.matrices(),
                                  .tiles = args.tiles,
                                  .numeric_class = group.first().numeric_class(),
                                  .rows = RowsOf(args.x),
                                  .out = args.out.as<float>()};
  for (const WeightFormat format : group.formats()) {
    switch (format) {
      case WeightFormat::kBf16:
        LaunchForRows<WeightFormat::kBf16>(product, args, stream);
        break;
      case WeightFormat::kInt8:
        LaunchForRows<WeightFormat::kInt8>(product, args, stream);
        break;
      case WeightFormat::kInt4:
        LaunchForRows<WeightFormat::kInt4>(product, args, stream);
        break;
      case WeightFormat::kE4m3: {
        const QuantizedRows rows(args.x, stream);
        GroupedProduct quantized = product;
        quantized.rows = RowsOf(rows);
        LaunchForRows<WeightFormat::kE4m3>(quantized, args, stream);
        break;
      }
    }
  }
}

}  // namespace foretoken::kernels::cuda
