// SPDX-License-Identifier: Apache-2.0
// The queries of a block, and the positions that they see.
//
// The queries of a segment at one K/V head are numbered row by row, a row's heads side by side, and cut into pieces of
// the size that a block takes. The segments' rows, which the host does not know, decide where pieces begin. The host
// launches as many blocks as there can be pieces, and a block without a piece returns.
#pragma once

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/base/mma.cuh"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Logical positions [begin, end).
struct Positions {
  int32_t begin = INT_MAX;  // this pair is the empty range, which changes no union
  int32_t end = 0;

  __device__ bool Has(int32_t position) const { return begin <= position && position < end; }
  __device__ Positions CountedFrom(int32_t position) const { return {begin - position, end - position}; }
};

__device__ inline Positions MakePositions(int32_t begin, int32_t end) {
  return begin < end ? Positions{begin, end} : Positions{};
}

// The smallest range that contains both.
__device__ inline Positions Union(const Positions& a, const Positions& b) {
  return {a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}
__device__ inline Positions UnionOfWarp(const Positions& positions) {
  return {__reduce_min_sync(0xffffffffu, positions.begin), __reduce_max_sync(0xffffffffu, positions.end)};
}

__device__ inline int32_t EndTile(const Positions& positions) {
  return (positions.end + kAttentionTile - 1) / kAttentionTile;
}

// The first of a split's tiles that is not before the tile of `begin`.
__device__ inline int32_t FirstTileOfSplit(int32_t begin, int32_t split) {
  static_assert((kAttentionSplits & (kAttentionSplits - 1)) == 0);
  const int32_t tile = begin / kAttentionTile;
  return tile + ((split - tile) & (kAttentionSplits - 1));
}

__device__ inline bool HasTilesInSplit(const Positions& positions, int32_t split) {
  return FirstTileOfSplit(positions.begin, split) < EndTile(positions);
}

// The positions that a row sees, and the slots of its ancestors' K/V.
struct RowKeys {
  Positions visible;
  int32_t chain_len = 0;
  const int32_t* ancestor_slots = nullptr;

  // Tiles that the block table holds whole, or as far as the row sees. All rows of the segment read the same there.
  __device__ Positions shared() const {
    return MakePositions(visible.begin, has_ancestors() ? own_begin() : visible.end);
  }
  // The other tiles, which hold ancestors.
  __device__ Positions own() const {
    if (!has_ancestors()) return {};
    return MakePositions(visible.begin > own_begin() ? visible.begin : own_begin(), visible.end);
  }
  __device__ int32_t SlotOf(int32_t position, const int32_t* block_table) const {
    if (position >= chain_len) return ancestor_slots[position - chain_len];
    return block_table[position / kKvBlockSize] * kKvBlockSize + position % kKvBlockSize;
  }

 private:
  __device__ bool has_ancestors() const { return visible.end > chain_len; }
  __device__ int32_t own_begin() const { return chain_len / kAttentionTile * kAttentionTile; }
};

__device__ inline RowKeys KeysOfRow(const AttentionArgs& args, int32_t row) {
  const int32_t end = args.batch.positions[row] + 1;
  const int32_t counted_to = args.window_origins != nullptr ? args.window_origins[row] + 1 : end;
  const int32_t begin = args.window.has_value() && *args.window < counted_to ? counted_to - *args.window : 0;
  return {.visible = {begin, end},
          .chain_len = args.batch.chain_lens[row],
          .ancestor_slots = args.batch.ancestor_slots + args.batch.ancestor_begins[row]};
}

// A range of a segment's queries.
struct QueryPiece {
  int32_t segment = 0;
  int32_t begin = 0;  // query i belongs to row segment_begins[segment] + i / group
  int32_t end = 0;
};

// The most pieces that segments with this many rows can have.
inline int64_t MaxPieces(int64_t num_queries, int64_t num_segments, int64_t piece_queries) {
  return (num_queries + num_segments * (piece_queries - 1)) / piece_queries;
}

// The pieces before segment i are at most MaxPieces of the queries and segments before it, so that many numbers are
// reserved for them. Since floor(a) + ceil(b) <= floor(a + b + 1 - 1 / size), no two pieces get the same number.
__device__ inline QueryPiece PieceOf(const BatchView& batch, int32_t group, int32_t piece_queries, int32_t number) {
  const auto first_number = [&](int32_t segment) {
    return (batch.segment_begins[segment] * group + segment * (piece_queries - 1)) / piece_queries;
  };
  // The last segment whose first number is not above `number`. The lanes look at 32 at a time, because each look takes
  // as long as memory does.
  int32_t segment = 0;
  for (auto i = static_cast<int32_t>(threadIdx.x) % kWarpThreads; i < batch.num_segments; i += kWarpThreads) {
    if (first_number(i) <= number) segment = i;
  }
  segment = __reduce_max_sync(0xffffffffu, segment);
  const int32_t num_queries = (batch.segment_begins[segment + 1] - batch.segment_begins[segment]) * group;
  const int32_t begin = (number - first_number(segment)) * piece_queries;
  return {segment, begin, begin + piece_queries < num_queries ? begin + piece_queries : num_queries};
}

// The number of heads that share a K/V head.
__device__ inline int32_t GroupOf(const AttentionArgs& args) {
  return static_cast<int32_t>(args.q.shape[1]) / args.kv.head_dim / args.kv.num_kv_heads;
}

// A lane has two of a warp's 16 queries: the queries in rows l / 4 and l / 4 + 8 of the products. They have index 0 and
// 1 in every array over a lane's queries.
inline constexpr int kLaneQueries = 2;
inline constexpr int kQuadLanes = 4;  // lanes with the same queries

struct LaneQuery {
  int32_t row_idx = 0;  // among the warp's rows
  int32_t index = 0;    // in [T, H]
  Positions visible;    // empty: there is no such query
  Positions shared;
  Positions own;
};

// The queries of a warp.
struct WarpQueries {
  LaneQuery queries[kLaneQueries];
  const RowKeys* rows = nullptr;  // [num_rows] of the queries; in shared memory
  int32_t num_rows = 0;
  Positions visible;  // by any of the queries
  Positions shared;
  Positions own;
};

// One lane looks up each row's keys and writes them to `rows`, which has a place for every query.
__device__ inline WarpQueries QueriesOfWarp(const AttentionArgs& args, const QueryPiece& piece, int32_t kv_head,
                                            RowKeys* rows) {
  const auto warp = static_cast<int32_t>(threadIdx.x) / kWarpThreads;
  const auto lane = static_cast<int32_t>(threadIdx.x) % kWarpThreads;
  const int32_t first = piece.begin + warp * kMmaRows, rest = piece.end - first;
  const int32_t group = GroupOf(args), first_row = first / group;
  WarpQueries of_warp{.queries = {}, .rows = rows};
  if (rest > 0) of_warp.num_rows = (first + (rest < kMmaRows ? rest : kMmaRows) - 1) / group - first_row + 1;
  const int32_t segment_begin = args.batch.segment_begins[piece.segment];
  if (lane < of_warp.num_rows) rows[lane] = KeysOfRow(args, segment_begin + first_row + lane);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kLaneQueries; ++i) {
    const int32_t query = first + lane / kQuadLanes + i * (kMmaRows / kLaneQueries);
    if (query >= piece.end) continue;
    const int32_t row = query / group;
    const RowKeys& keys = rows[row - first_row];
    of_warp.queries[i] = {.row_idx = row - first_row,
                          .index = ((segment_begin + row) * args.kv.num_kv_heads + kv_head) * group + query % group,
                          .visible = keys.visible,
                          .shared = keys.shared(),
                          .own = keys.own()};
  }
  of_warp.visible = UnionOfWarp(Union(of_warp.queries[0].visible, of_warp.queries[1].visible));
  of_warp.shared = UnionOfWarp(Union(of_warp.queries[0].shared, of_warp.queries[1].shared));
  of_warp.own = UnionOfWarp(Union(of_warp.queries[0].own, of_warp.queries[1].own));
  return of_warp;
}

}  // namespace foretoken::kernels::cuda
