// SPDX-License-Identifier: Apache-2.0
// A block's visits to the tiles of its splits.
//
// First come the tiles of a split that the block's rows share. The block's threads copy them into a ring of shared
// memory, while its warps, each for its 16 queries, attend to the newest complete tile. Then each warp by itself visits
// the tiles that hold its rows' ancestors. A query's own tiles come after the shared ones, so it sees all tiles in the
// order of their positions.
//
// The ring runs on from split to split. Only where a split has own tiles, which use the ring's memory, it begins anew.
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
  uint32_t key_places[BlockShape<kSteps>::kWarps][kAttentionTile];
  RowKeys rows[BlockShape<kSteps>::kWarps][kMmaRows];
  Positions warps_visible[BlockShape<kSteps>::kWarps];
  Positions warps_shared[BlockShape<kSteps>::kWarps];
  Positions warps_own[BlockShape<kSteps>::kWarps];

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
  Positions own;
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
  memory.warps_own[warp] = task.warp.own;
  __syncthreads();
  for (const Positions& visible : memory.warps_visible) task.visible = Union(task.visible, visible);
  for (const Positions& shared : memory.warps_shared) task.shared = Union(task.shared, shared);
  for (const Positions& own : memory.warps_own) task.own = Union(task.own, own);
  return task;
}

template <int kSteps>
__device__ TileQueries<kSteps> LoadQueries(const BlockTask& task) {
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

// The tiles that the block's queries share, of the splits `first_split`, `first_split` + `split_stride`, ..., in order.
// kStages - 1 copies are on their way, of the next tiles or, at the end and before own tiles, of nothing.
template <int kSteps>
class SharedTiles {
 public:
  __device__ SharedTiles(const BlockTask& task, int32_t first_split, int32_t split_stride)
      : task_(task), end_(EndTile(task.shared)), split_stride_(split_stride), next_{first_split, 0} {
    EnterSplit();
    FillRing();
  }

  // Attends to the split's shared tiles. A thread waits for its own copies and then, at a barrier, for the other
  // threads' copies. Behind that barrier no thread computes on the previous tile any more, so the next copy may
  // overwrite it.
  __device__ void Attend(int32_t split, const TileQueries<kSteps>& queries, TileSoftmax<kSteps>& softmax) {
    // A place without a query sees everything, so that it never makes a tile count as seen in part.
    const auto visible_to = [](const LaneQuery& query) {
      return query.visible.end > 0 ? query.shared : Positions{0, INT_MAX};
    };
    const Positions visible[kLaneQueries] = {visible_to(task_.warp.queries[0]), visible_to(task_.warp.queries[1])};
    for (int32_t tile = FirstTileOfSplit(task_.shared.begin, split); tile < end_; tile += kAttentionSplits) {
      ptx::WaitForCopies<kStages - 2>();
      __syncthreads();
      StartCopyOf(next_, next_blocks_, (stage_ + kStages - 1) % kStages);
      Advance();
      next_blocks_ = BlocksOf(next_);  // long before they are needed
      const int32_t tile_begin = tile * kAttentionTile;
      if (task_.warp.shared.begin < tile_begin + kAttentionTile && tile_begin < task_.warp.shared.end) {
        AttendTile(queries, BlockMemory<kSteps>::Get().tiles[stage_], tile_begin, visible, softmax);
      }
      stage_ = (stage_ + 1) % kStages;
    }
  }

  // Call it behind the own tiles of a split, when no warp uses the ring's memory any more.
  __device__ void Resume() {
    LeaveSplit();
    FillRing();
  }

 private:
  static constexpr int kStages = BlockShape<kSteps>::kWarps;

  // The next tile to copy. There is none behind the last split, and none between a split's last shared tile and Resume
  // if the split has own tiles.
  struct Next {
    int32_t split;
    int32_t tile;
  };
  __device__ bool HasTile(const Next& next) const { return next.split < kAttentionSplits && next.tile < end_; }

  __device__ void Advance() {
    next_.tile += kAttentionSplits;
    PassEmptySplits();
  }
  __device__ void LeaveSplit() {
    next_.split += split_stride_;
    EnterSplit();
  }
  __device__ void EnterSplit() {
    next_.tile = FirstTileOfSplit(task_.shared.begin, next_.split);
    PassEmptySplits();
  }
  __device__ void PassEmptySplits() {
    while (next_.split < kAttentionSplits && next_.tile >= end_ && !HasTilesInSplit(task_.own, next_.split)) {
      next_.split += split_stride_;
      next_.tile = FirstTileOfSplit(task_.shared.begin, next_.split);
    }
  }
  __device__ TileBlocks BlocksOf(const Next& next) const {
    return TileBlocks(task_.block_table, HasTile(next) ? next.tile : 0, task_.shared.end);
  }

  __device__ void FillRing() {
    Next first[kStages - 1];
#pragma unroll
    for (Next& next : first) {
      next = next_;
      Advance();
    }
    TileBlocks blocks[kStages - 1];
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) blocks[i] = BlocksOf(first[i]);  // all reads together
    next_blocks_ = BlocksOf(next_);
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) StartCopyOf(first[i], blocks[i], i);
    stage_ = 0;
  }
  __device__ void StartCopyOf(const Next& next, const TileBlocks& blocks, int stage) const {
    const auto place_of = [&](int key) { return task_.cache.PlaceOf(blocks.SlotOf(key)); };
    if (HasTile(next)) {
      StartCopy<BlockShape<kSteps>::kThreads>(task_.cache, task_.shared.CountedFrom(next.tile * kAttentionTile),
                                              place_of, BlockMemory<kSteps>::Get().tiles[stage]);
    }
    ptx::CommitCopies();
  }

  const BlockTask& task_;
  int32_t end_;
  int32_t split_stride_;
  Next next_;
  TileBlocks next_blocks_;
  int stage_ = 0;
};

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
  __device__ uint32_t KeyPlace(const BlockTask& task) const {
    const int32_t position = tile * kAttentionTile + static_cast<int32_t>(threadIdx.x) % kWarpThreads;
    if (row_idx >= task.warp.num_rows || !own.Has(position)) return 0;
    return task.cache.PlaceOf(task.warp.rows[row_idx].SlotOf(position, task.block_table));
  }
};

// Visits the warp's own tiles. While one tile's keys are copied, the places of the next tile's keys are looked up.
template <int kSteps>
__device__ void AttendOwnTiles(const BlockTask& task, const TileQueries<kSteps>& queries, int32_t split,
                               TileSoftmax<kSteps>& softmax) {
  static_assert(kAttentionTile == kWarpThreads);
  SharedTile<kSteps>& keys = BlockMemory<kSteps>::Get().tiles[threadIdx.x / kWarpThreads];
  uint32_t* places = BlockMemory<kSteps>::Get().key_places[threadIdx.x / kWarpThreads];
  const auto place_of = [&](int key) { return places[key]; };
  OwnTile next;
  next.Next(task.warp, split);
  uint32_t next_place = next.KeyPlace(task);
  while (next.row_idx < task.warp.num_rows) {
    const OwnTile now = next;
    places[threadIdx.x % kWarpThreads] = next_place;
    __syncwarp();
    StartCopy<kWarpThreads>(task.cache, now.own.CountedFrom(now.tile * kAttentionTile), place_of, keys);
    ptx::CommitCopies();
    next.Next(task.warp, split);
    next_place = next.KeyPlace(task);
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

// The caller visits splits in the order of `shared`, and may leave out a split in which no query sees a key.
template <int kSteps>
__device__ TileSoftmax<kSteps> AttendSplit(const BlockTask& task, const TileQueries<kSteps>& queries, int32_t split,
                                           SharedTiles<kSteps>& shared) {
  TileSoftmax<kSteps> softmax;
  shared.Attend(split, queries, softmax);
  if (HasTilesInSplit(task.own, split)) {
    __syncthreads();  // from here on the ring's memory belongs to the single warps
    AttendOwnTiles(task, queries, split, softmax);
    __syncthreads();
    shared.Resume();
  }
  for (float& sum : softmax.sum) sum = QuadSum(sum);
  return softmax;
}

}  // namespace foretoken::kernels::cuda
