// SPDX-License-Identifier: Apache-2.0
// One block per piece of queries (attention_queries.cuh) and K/V head, or with few rows several that share the splits.
// A piece is 16 queries per warp. With 4 heads to a K/V head, 64 queries are 16 rows of a tree or a chunk. The block's
// threads copy tiles into a ring of shared memory, with one barrier per tile. Meanwhile its warps, each for its 16
// queries, attend to the newest complete tile. Then each warp by itself visits the tiles that hold its rows' ancestors.
//
// Bytes moved: K and V once per piece, so once per segment of at most 64 queries, and one partial result per split,
// query and dimension. With 64 queries the partial results are 6 % of K and V at 32k positions, and half at 4k. Tiles
// of 32 keys are two K/V blocks. A step then has four independent chains of products, and the tiles that a row does not
// share are short. A head of more than 128 dimensions takes twice the registers and shared memory, so its blocks have
// half the queries.
#include <algorithm>

#include "kernels/check.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_queries.cuh"
#include "kernels/cuda/attention/attention_split.cuh"
#include "kernels/cuda/attention/attention_tile.cuh"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/base/stream_scratch.h"

namespace foretoken::kernels::cuda {
namespace {

// The splits' results, which the merging kernel reads. A split has no result for a row that sees nothing of it.
struct Partials {
  float* out = nullptr;  // [T, H, kAttentionSplits, D]
  float* max = nullptr;  // [T, H, kAttentionSplits]
  float* sum = nullptr;  // [T, H, kAttentionSplits]
};

// Calls function(dim, i) for the lane's dimensions dim and dim + 1 of a query. They are elements i and i + 1 of its
// kOutElements.
template <int kSteps, typename Function>
__device__ void ForEachPair(int query, int32_t head_dim, const Function& function) {
#pragma unroll
  for (int i = 0; i < 2 * kSteps; ++i) {
    const int32_t dim = i * kMmaColumns + static_cast<int32_t>(threadIdx.x) % kQuadLanes * 2;
    if (dim < head_dim) function(dim, i * 4 + query * 2);
  }
}

template <int kSteps>
__global__ void __launch_bounds__(BlockShape<kSteps>::kThreads, BlockShape<kSteps>::kBlocksPerProcessor)
    AttendSplitsOfPiece(AttentionArgs args, int32_t blocks_per_piece, Partials partials) {
  using Shape = BlockShape<kSteps>;
  const auto number = static_cast<int32_t>(blockIdx.x) / blocks_per_piece;
  const QueryPiece piece = PieceOf(args.batch, GroupOf(args), Shape::kQueries, number);
  if (piece.begin >= piece.end) return;
  const BlockTask task = MakeTask<kSteps>(args, piece);
  const TileQueries<kSteps> queries = LoadQueries<kSteps>(task);
  const int32_t head_dim = args.kv.head_dim, first_split = static_cast<int32_t>(blockIdx.x) % blocks_per_piece;
  SharedTiles<kSteps> shared(task, first_split, blocks_per_piece);
#pragma unroll 1
  for (int32_t split = first_split; split < kAttentionSplits; split += blocks_per_piece) {
    if (!HasTilesInSplit(task.visible, split)) continue;
    const TileSoftmax<kSteps> softmax = AttendSplit(task, queries, split, shared);
#pragma unroll
    for (int i = 0; i < kLaneQueries; ++i) {
      const LaneQuery& query = task.warp.queries[i];
      if (!HasTilesInSplit(query.visible, split)) continue;
      const int64_t index = int64_t{query.index} * kAttentionSplits + split;
      partials.max[index] = softmax.max[i];
      partials.sum[index] = softmax.sum[i];
      ForEachPair<kSteps>(i, head_dim, [&](int32_t dim, int element) {
        const float* sums = softmax.out[element / 4].sums + element % 4;
        *reinterpret_cast<FloatPair*>(partials.out + index * head_dim + dim) = {sums[0], sums[1]};
      });
    }
  }
}

// One block per row and head, one thread per dimension.
constexpr int kMergeThreads = 128;

__global__ void __launch_bounds__(kMergeThreads) MergeSplits(AttentionArgs args, Partials partials) {
  const int32_t head_dim = args.kv.head_dim;
  const int64_t query = int64_t{blockIdx.x} * gridDim.y + blockIdx.y;
  const Positions visible = KeysOfRow(args, static_cast<int32_t>(blockIdx.x)).visible;
  const int64_t first = query * kAttentionSplits;
  for (auto dim = static_cast<int32_t>(threadIdx.x); dim < head_dim; dim += kMergeThreads) {
    float outs[kAttentionSplits], maxima[kAttentionSplits], sums[kAttentionSplits];
#pragma unroll
    for (int32_t split = 0; split < kAttentionSplits; ++split) {  // all reads at once; they take most of the time
      // A split without a result is read, too, because a condition would put a branch between two reads.
      outs[split] = partials.out[(first + split) * head_dim + dim];
      maxima[split] = partials.max[first + split];
      sums[split] = partials.sum[first + split];
    }
    MergedSoftmax merged;
    float out = 0;
#pragma unroll
    for (int32_t split = 0; split < kAttentionSplits; ++split) {
      if (!HasTilesInSplit(visible, split)) continue;
      const MergedSoftmax::Factors factors = merged.Add(maxima[split], sums[split]);
      out = factors.Merge(out, outs[split]);
    }
    if (args.sinks != nullptr) out *= merged.AddSink(args.sinks[blockIdx.y]);
    args.out.as<uint16_t>()[query * head_dim + dim] = Bf16FromFloat(merged.Output(out));
  }
}

// The merged sums lie in shared memory, each lane's in places of its own. They are read and written once per split, and
// registers are scarce.
template <int kSteps>
struct MergingMemory {
  BlockMemory<kSteps> block;
  float outs[BlockShape<kSteps>::kOutElements][BlockShape<kSteps>::kThreads];
};

template <int kSteps>
__global__ void __launch_bounds__(BlockShape<kSteps>::kThreads) AttendPiece(AttentionArgs args) {
  using Shape = BlockShape<kSteps>;
  const auto number = static_cast<int32_t>(gridDim.x - 1 - blockIdx.x);  // in a chunk the last rows have most to do
  const QueryPiece piece = PieceOf(args.batch, GroupOf(args), Shape::kQueries, number);
  if (piece.begin >= piece.end) return;
  const BlockTask task = MakeTask<kSteps>(args, piece);
  const TileQueries<kSteps> queries = LoadQueries<kSteps>(task);
  auto& outs = static_cast<MergingMemory<kSteps>*>(ptx::DynamicSharedMemory())->outs;
  const auto out_of = [&](int element) -> float& { return outs[element][threadIdx.x]; };
  for (int i = 0; i < Shape::kOutElements; ++i) out_of(i) = 0;
  MergedSoftmax merged[kLaneQueries];
  const int32_t head_dim = args.kv.head_dim, num_heads = GroupOf(args) * args.kv.num_kv_heads;
  SharedTiles<kSteps> shared(task, 0, 1);
  for (int32_t split = 0; split < kAttentionSplits; ++split) {
    const TileSoftmax<kSteps> softmax = AttendSplit(task, queries, split, shared);
#pragma unroll
    for (int i = 0; i < kLaneQueries; ++i) {
      if (!HasTilesInSplit(task.warp.queries[i].visible, split)) continue;
      const MergedSoftmax::Factors factors = merged[i].Add(softmax.max[i], softmax.sum[i]);
      ForEachPair<kSteps>(i, head_dim, [&](int32_t, int element) {
        const float* sums = softmax.out[element / 4].sums + element % 4;
        out_of(element) = factors.Merge(out_of(element), sums[0]);
        out_of(element + 1) = factors.Merge(out_of(element + 1), sums[1]);
      });
    }
  }
#pragma unroll
  for (int i = 0; i < kLaneQueries; ++i) {
    if (task.warp.queries[i].visible.end == 0) continue;
    const int32_t query = task.warp.queries[i].index;
    uint16_t* out = args.out.as<uint16_t>() + int64_t{query} * head_dim;
    const float kept = args.sinks == nullptr ? 1.0f : merged[i].AddSink(args.sinks[query % num_heads]);
    ForEachPair<kSteps>(i, head_dim, [&](int32_t dim, int element) {
      out[dim] = Bf16FromFloat(merged[i].Output(out_of(element) * kept));
      out[dim + 1] = Bf16FromFloat(merged[i].Output(out_of(element + 1) * kept));
    });
  }
}

struct PieceLaunch {
  const AttentionArgs& args;
  int32_t blocks_per_piece;
  Partials partials;
  cudaStream_t stream;
};

template <int kSteps>
void LaunchPieces(const PieceLaunch& launch) {
  using Shape = BlockShape<kSteps>;
  static_assert(sizeof(MergingMemory<kSteps>) <= size_t{99} << 10, "more than compute capability 8.6 gives a block");
  const AttentionArgs& args = launch.args;
  const int64_t num_heads = args.q.shape[1] / args.kv.head_dim, num_rows = args.batch.num_rows;
  const int64_t num_pieces =
      MaxPieces(num_rows * (num_heads / args.kv.num_kv_heads), args.batch.num_segments, Shape::kQueries);
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(num_pieces * launch.blocks_per_piece),
                                 static_cast<unsigned>(args.kv.num_kv_heads)),
                    .block = dim3(Shape::kThreads),
                    .stream = launch.stream};
  if (launch.blocks_per_piece == 1) {
    shape.shared_bytes = sizeof(MergingMemory<kSteps>);
    FT_CUDA_CHECK(Launch(AttendPiece<kSteps>, shape, args));
    return;
  }
  shape.shared_bytes = sizeof(BlockMemory<kSteps>);
  FT_CUDA_CHECK(Launch(AttendSplitsOfPiece<kSteps>, shape, args, launch.blocks_per_piece, launch.partials));
  shape = {.grid = dim3(static_cast<unsigned>(num_rows), static_cast<unsigned>(num_heads)),
           .block = dim3(kMergeThreads),
           .stream = launch.stream};
  FT_CUDA_CHECK(Launch(MergeSplits, shape, args, launch.partials));
}

void LaunchForHeadDim(const PieceLaunch& launch) {
  const int32_t head_dim = launch.args.kv.head_dim;
  if (head_dim <= 64) return LaunchPieces<4>(launch);
  if (head_dim <= 96) return LaunchPieces<6>(launch);
  if (head_dim <= 128) return LaunchPieces<8>(launch);
  return LaunchPieces<16>(launch);
}

}  // namespace

int32_t ChooseBlocksPerPiece(const AttentionCounts& counts) {
  // A GPU has about this many places for blocks. With one piece in each, the partial results would take 128 MiB for
  // each 128 dimensions.
  constexpr int64_t kPlaces = 256, kQueries = BlockShape<8>::kQueries;
  if (counts.num_rows * counts.num_heads >= kPlaces * kQueries) return 1;
  // More blocks than a GPU has places would only look up their queries more often. Two at least share a long context.
  // num_pieces is a guess: small segments that end within a piece make more of them.
  constexpr int32_t kMinBlocks = 2;
  const int64_t num_queries = counts.num_rows * counts.num_heads / counts.num_kv_heads;
  const int64_t num_pieces =
      std::max(counts.num_segments, (num_queries + kQueries - 1) / kQueries) * counts.num_kv_heads;
  int32_t blocks_per_piece = kAttentionSplits;
  while (blocks_per_piece > kMinBlocks && num_pieces * blocks_per_piece > kPlaces) blocks_per_piece /= 2;
  return blocks_per_piece;
}

void Attention(const AttentionArgs& args, cudaStream_t stream) {
  Attention(args,
            ChooseBlocksPerPiece({.num_rows = args.batch.num_rows,
                                  .num_segments = args.batch.num_segments,
                                  .num_heads = args.q.shape[1] / args.kv.head_dim,
                                  .num_kv_heads = args.kv.num_kv_heads}),
            stream);
}

void Attention(const AttentionArgs& args, int32_t blocks_per_piece, cudaStream_t stream) {
  const int32_t head_dim = args.kv.head_dim;
  const int64_t num_columns = args.q.shape[1];
  FT_CHECK(args.q.dtype == DType::kF32 && args.out.dtype == DType::kBF16);
  FT_CHECK(head_dim % 2 == 0 && head_dim <= kMaxAttentionHeadDim);
  FT_CHECK(num_columns % (int64_t{args.kv.num_kv_heads} * head_dim) == 0 && args.out.shape[1] == num_columns);
  FT_CHECK(!args.window.has_value() || *args.window > 0);
  if (args.batch.num_rows == 0) return;
  if (blocks_per_piece == 1) return LaunchForHeadDim({args, blocks_per_piece, {}, stream});
  const int64_t num_results = args.batch.num_rows * (num_columns / head_dim) * kAttentionSplits;
  const StreamScratch scratch(num_results * (head_dim + 2) * sizeof(float), stream);
  auto* out = static_cast<float*>(scratch.data());
  float* max = out + num_results * head_dim;
  LaunchForHeadDim({args, blocks_per_piece, {out, max, max + num_results}, stream});
}

}  // namespace foretoken::kernels::cuda
