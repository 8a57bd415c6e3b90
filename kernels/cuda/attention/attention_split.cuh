// SPDX-License-Identifier: Apache-2.0
// A block's visit to the tiles of one split.
//
// First come the tiles that the block's rows share. Its threads copy them into a ring of shared memory, while its
// warps, each for its 16 queries, attend to the newest complete tile. Then each warp by itself visits the tiles that
// hold its rows' ancestors. A query's own tiles come after the shared ones, so it sees all tiles in the order of their
// positions.
#pragma once

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_keys.cuh"
#include "kernels/cuda/attention/attention_queries.cuh"
#include "kernels/cuda/attention/attention_tile.cuh"
#include "kernels/cuda/base/mma.cuh"
#include "kernels/cuda/base/ptx.cuh"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// For heads of at most kSteps * kMmaDepth dimensions.
template <int kSteps>
struct BlockShape {
  static constexpr int kWarps = kSteps <= 8 ? 4 : 2;
  static constexpr int kThreads = kWarps * kWarpThreads;
  static constexpr int kQueries = kWarps * kMmaRows;
  static constexpr int kOutElements = 2 * kSteps * 4;  // of a lane
  // Blocks per multiprocessor where several blocks share the splits. Each keeps 48 KiB and more of copies in flight.
  // Three would leave each block so few registers that nvcc spills some, which was slower on an H200.
  static constexpr int kBlocksPerProcessor = 2;
};

// The block's shared memory. A kernel that needs more puts it behind.
template <int kSteps>
struct BlockMemory {
  SharedTile<kSteps> tiles[BlockShape<kSteps>::kWarps];  // the block's ring, or one for each warp
  size_t key_offsets[BlockShape<kSteps>::kWarps][kAttentionTile];
  RowKeys rows[BlockShape<kSteps>::kWarps][kMmaRows];
  Positions warps_visible[BlockShape<kSteps>::kWarps];
  Positions warps_shared[BlockShape<kSteps>::kWarps];

  static __device__ BlockMemory& Get() { return *static_cast<BlockMemory*>(ptx::DynamicSharedMemory()); }
};

struct alignas(8) FloatPair {
  float first = 0;
  float second = 0;
};

// The work of a block.
struct BlockTask {
  const AttentionArgs& args;
  HeadCache cache;
  const int32_t* block_table = nullptr;
  WarpQueries warp;
  Positions visible;  // by any of the block's queries
  Positions shared;
};

template <int kSteps>
__device__ BlockTask MakeTask(const AttentionArgs& args, const QueryPiece& piece) {
  auto& memory = BlockMemory<kSteps>::Get();
  const auto kv_head = static_cast<int32_t>(blockIdx.y), warp = static_cast<int32_t>(threadIdx.x) / kWarpThreads;
  BlockTask task{.args = args,
                 .cache = HeadCache(args, kv_head),
                 .block_table = args.batch.block_tables + args.batch.block_table_begins[piece.segment],
                 .warp = QueriesOfWarp(args, piece, kv_head, memory.rows[warp])};
  memory.warps_visible[warp] = task.warp.visible;
  memory.warps_shared[warp] = task.warp.shared;
  __syncthreads();
  for (const Positions& visible : memory.warps_visible) task.visible = Union(task.visible, visible);
  for (const Positions& shared : memory.warps_shared) task.shared = Union(task.shared, shared);
  return task;
}

template <int kSteps>
__device__ TileQueries<kSteps> LoadQueries(const BlockTask& task) {
  constexpr float kLog2E = 1.44269504f;
  const int32_t head_dim = task.args.kv.head_dim;
  TileQueries<kSteps> queries{.q = {}, .scale = task.args.scale * kLog2E, .cap = task.args.cap.value_or(0.0f) * kLog2E};
#pragma unroll
  for (int i = 0; i < kSteps * 4; ++i) {
    const LaneQuery& query = task.warp.queries[i % 2];
    const int32_t dim = i / 4 * kMmaDepth + i % 4 / 2 * 8 + static_cast<int32_t>(threadIdx.x) % kQuadLanes * 2;
    if (query.visible.end == 0 || dim >= head_dim) continue;
    const auto q = *reinterpret_cast<const FloatPair*>(task.args.q.as<float>() + int64_t{query.index} * head_dim + dim);
    queries.q[i / 4].pairs[i % 4] = ptx::Bf16Pair(q.first, q.second);
  }
  return queries;
}

// Visits the split's tiles that the block's queries share. A thread waits for its own copies and then, at a barrier,
// for the other threads' copies. Behind that barrier no thread computes on the previous tile any more, so the next copy
// may overwrite it.
template <int kSteps>
__device__ void AttendSharedTiles(const BlockTask& task, const TileQueries<kSteps>& queries, int32_t split,
                                  TileSoftmax<kSteps>& softmax) {
  using Shape = BlockShape<kSteps>;
  auto& ring = BlockMemory<kSteps>::Get().tiles;
  constexpr int kStages = Shape::kWarps;
  // A place without a query sees everything, so that it never makes a tile count as seen in part.
  const auto visible_to = [](const LaneQuery& query) {
    return query.visible.end > 0 ? query.shared : Positions{0, INT_MAX};
  };
  const Positions visible[kLaneQueries] = {visible_to(task.warp.queries[0]), visible_to(task.warp.queries[1])};
  const int32_t first = FirstTileOfSplit(task.shared.begin, split), end = EndTile(task.shared);
  const auto start_copy = [&](int32_t tile, const TileBlocks& blocks, int stage) {
    const auto offset_of = [&](int key) { return task.cache.Offset(blocks.SlotOf(key)); };
    if (tile < end) {
      StartCopy<Shape::kThreads>(task.cache, task.shared.CountedFrom(tile * kAttentionTile), offset_of, ring[stage]);
    }
    ptx::CommitCopies();
  };
  // Blocks are read long before they are needed, the first of them together.
  TileBlocks first_blocks[kStages];
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    first_blocks[i] = TileBlocks(task.block_table, first + i * kAttentionSplits, task.shared.end);
  }
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) start_copy(first + i * kAttentionSplits, first_blocks[i], i);
  int32_t next = first + (kStages - 1) * kAttentionSplits;
  TileBlocks next_blocks = first_blocks[kStages - 1];
  int stage = 0;
  for (int32_t tile = first; tile < end; tile += kAttentionSplits) {
    ptx::WaitForCopies<kStages - 2>();
    __syncthreads();
    start_copy(next, next_blocks, (stage + kStages - 1) % kStages);
    next += kAttentionSplits;
    next_blocks = TileBlocks(task.block_table, next, task.shared.end);
    const int32_t tile_begin = tile * kAttentionTile;
    if (task.warp.shared.begin < tile_begin + kAttentionTile && tile_begin < task.warp.shared.end) {
      AttendTile(queries, ring[stage], tile_begin, visible, softmax);
    }
    stage = (stage + 1) % kStages;
  }
}

// A warp's tiles of one split that hold ancestors: row by row, in order.
struct OwnTile {
  int32_t row_idx = -1;
  Positions own;     // the row's positions in such tiles
  int32_t tile = 0;  // a tile of `own`

  __device__ void Next(const WarpQueries& warp, int32_t split) {
    tile += kAttentionSplits;
    while (tile >= EndTile(own) && ++row_idx < warp.num_rows) {
      own = warp.rows[row_idx].own();
      tile = FirstTileOfSplit(own.begin, split);
    }
  }
  // The place of this lane's key, if the tile has that key.
  __device__ size_t KeyOffset(const BlockTask& task) const {
    const int32_t position = tile * kAttentionTile + static_cast<int32_t>(threadIdx.x) % kWarpThreads;
    if (row_idx >= task.warp.num_rows || !own.Has(position)) return 0;
    return task.cache.Offset(task.warp.rows[row_idx].SlotOf(position, task.block_table));
  }
};

// Visits the warp's own tiles. While one tile's keys are copied, the places of the next tile's keys are looked up.
template <int kSteps>
__device__ void AttendOwnTiles(const BlockTask& task, const TileQueries<kSteps>& queries, int32_t split,
                               TileSoftmax<kSteps>& softmax) {
  static_assert(kAttentionTile == kWarpThreads);
  SharedTile<kSteps>& keys = BlockMemory<kSteps>::Get().tiles[threadIdx.x / kWarpThreads];
  size_t* offsets = BlockMemory<kSteps>::Get().key_offsets[threadIdx.x / kWarpThreads];
  const auto offset_of = [&](int key) { return offsets[key]; };
  OwnTile next;
  next.Next(task.warp, split);
  size_t next_offset = next.KeyOffset(task);
  while (next.row_idx < task.warp.num_rows) {
    const OwnTile now = next;
    offsets[threadIdx.x % kWarpThreads] = next_offset;
    __syncwarp();
    StartCopy<kWarpThreads>(task.cache, now.own.CountedFrom(now.tile * kAttentionTile), offset_of, keys);
    ptx::CommitCopies();
    next.Next(task.warp, split);
    next_offset = next.KeyOffset(task);
    Positions visible[kLaneQueries];
    for (int i = 0; i < kLaneQueries; ++i) {
      const LaneQuery& query = task.warp.queries[i];
      if (query.visible.end > 0 && query.row_idx == now.row_idx) visible[i] = now.own;
    }
    ptx::WaitForCopies<0>();
    __syncwarp();
    AttendTile(queries, keys, now.tile * kAttentionTile, visible, softmax);
    __syncwarp();  // the next tile uses the same memory
  }
}

template <int kSteps>
__device__ TileSoftmax<kSteps> AttendSplit(const BlockTask& task, const TileQueries<kSteps>& queries, int32_t split) {
  TileSoftmax<kSteps> softmax;
  AttendSharedTiles(task, queries, split, softmax);
  __syncthreads();  // from here on the ring's memory belongs to the single warps
  AttendOwnTiles(task, queries, split, softmax);
  for (float& sum : softmax.sum) sum = QuadSum(sum);
  return softmax;
}

}  // namespace foretoken::kernels::cuda
