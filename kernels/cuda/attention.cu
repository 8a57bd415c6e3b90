// SPDX-License-Identifier: Apache-2.0
// A block per (row, head), a warp per split, a lane per position of a tile; then a lane per 32nd dimension. Scores read
// K a position per lane, so that a token's elements come through the first-level cache; V is read side by side. Bytes
// moved: a row's K and V once per head, so rows and heads that share keys meet in the second-level cache only. Warps
// share nothing until the merge, and each score is one chain of additions over d.
#include <cfloat>
#include <cmath>

#include "kernels/check.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kLanes = 32;
constexpr int kThreads = kAttentionSplits * kLanes;
constexpr int kDimsPerLane = kMaxAttentionHeadDim / kLanes;
static_assert(kAttentionTile == kLanes && kMaxAttentionHeadDim <= kThreads);

// What a row sees: positions [begin, end), and where their K/V lies.
struct VisibleKeys {
  const int32_t* block_table = nullptr;
  const int32_t* ancestor_slots = nullptr;
  int32_t chain_len = 0;
  int32_t begin = 0;
  int32_t end = 0;
};

__device__ VisibleKeys KeysOfRow(const AttentionArgs& args, int32_t row) {
  const BatchView& batch = args.batch;
  int32_t segment = 0, beyond = batch.num_segments;  // the last segment that begins at or before the row
  while (beyond - segment > 1) {
    const int32_t middle = segment + (beyond - segment) / 2;
    (batch.segment_begins[middle] <= row ? segment : beyond) = middle;
  }
  const int32_t end = batch.positions[row] + 1;
  const int32_t begin = args.window.has_value() && *args.window < end ? end - *args.window : 0;
  return {.block_table = batch.block_tables + batch.block_table_begins[segment],
          .ancestor_slots = batch.ancestor_slots + batch.ancestor_begins[row],
          .chain_len = batch.chain_lens[row],
          .begin = begin,
          .end = end};
}

__device__ int32_t SlotOf(const VisibleKeys& keys, int32_t position) {
  if (position >= keys.chain_len) return keys.ancestor_slots[position - keys.chain_len];
  return keys.block_table[position / kKvBlockSize] * kKvBlockSize + position % kKvBlockSize;
}

// A split's running softmax. `out` is spread over the lanes: lane i has dimensions i, i + 32, ...
struct Softmax {
  float max = -FLT_MAX;
  float sum = 0;
  float out[kDimsPerLane] = {};
};

// What the lanes of a warp show each other of a tile.
struct SharedTile {
  int32_t slots[kAttentionTile];
  float scores[kAttentionTile];
  float weights[kAttentionTile];
};

// Adds the tile that begins at `tile_begin`. Every lane follows all 32 columns where an order matters, so each has the
// same maximum and sum. Columns beyond what the row sees are not read, whatever the cache holds there.
__device__ void AttendTile(const AttentionArgs& args, const VisibleKeys& keys, int32_t tile_begin, const float* q,
                           SharedTile& tile, Softmax& softmax) {
  const KvCacheView& kv = args.kv;
  const auto lane = static_cast<int32_t>(threadIdx.x) % kLanes;
  const auto kv_head = static_cast<int32_t>(blockIdx.y / (gridDim.y / kv.num_kv_heads));
  const int32_t position = tile_begin + lane;
  const bool is_visible = keys.begin <= position && position < keys.end;
  float score = -FLT_MAX;
  if (is_visible) {
    const int32_t slot = tile.slots[lane] = SlotOf(keys, position);
    const uint16_t* key = kv.part(args.layer, 0) + kv.slot_offset(slot, kv_head);
    score = 0;
    for (int32_t d = 0; d < kv.head_dim; ++d) score = fmaf(q[d], FloatFromBf16(key[d]), score);
  }
  tile.scores[lane] = score;
  __syncwarp();
  float max = softmax.max;
  for (int i = 0; i < kAttentionTile; ++i) max = fmaxf(max, tile.scores[i]);
  tile.weights[lane] = is_visible ? expf(score - max) : 0;
  const float decay = expf(softmax.max - max);
  __syncwarp();
  float sum = 0;
  for (int i = 0; i < kAttentionTile; ++i) sum += tile.weights[i];
  softmax.sum = fmaf(softmax.sum, decay, sum);
  softmax.max = max;

  for (float& out : softmax.out) out *= decay;
  const int32_t first = keys.begin > tile_begin ? keys.begin - tile_begin : 0;
  const int32_t last = keys.end < tile_begin + kAttentionTile ? keys.end - tile_begin : kAttentionTile;
  for (int32_t i = first; i < last; ++i) {
    const uint16_t* value = kv.part(args.layer, 1) + kv.slot_offset(tile.slots[i], kv_head);
    for (int32_t v = 0; v < kDimsPerLane; ++v) {
      const int32_t d = v * kLanes + lane;
      if (d < kv.head_dim) softmax.out[v] = fmaf(tile.weights[i], FloatFromBf16(value[d]), softmax.out[v]);
    }
  }
  __syncwarp();  // the next tile writes what lanes read here
}

__device__ Softmax AttendSplit(const AttentionArgs& args, const VisibleKeys& keys, const float* q, SharedTile& tile) {
  const auto split = static_cast<int32_t>(threadIdx.x) / kLanes;
  const int32_t first_tile = keys.begin / kAttentionTile;
  Softmax softmax;
  for (int32_t tile_idx = first_tile / kAttentionSplits * kAttentionSplits + split;
       tile_idx * kAttentionTile < keys.end; tile_idx += kAttentionSplits) {
    if (tile_idx >= first_tile) AttendTile(args, keys, tile_idx * kAttentionTile, q, tile, softmax);
  }
  return softmax;
}

// The splits' results side by side, for the merge.
struct SharedSplits {
  float max[kAttentionSplits];
  float sum[kAttentionSplits];
  float out[kAttentionSplits][kMaxAttentionHeadDim];
};

// Splits without a visible position have sum and out 0 and add nothing.
__device__ float MergedOutput(const SharedSplits& splits, int32_t d) {
  float max = splits.max[0];
  for (int i = 1; i < kAttentionSplits; ++i) max = fmaxf(max, splits.max[i]);
  float sum = 0, out = 0;
  for (int i = 0; i < kAttentionSplits; ++i) {
    const float factor = expf(splits.max[i] - max);
    sum = fmaf(splits.sum[i], factor, sum);
    out = fmaf(splits.out[i][d], factor, out);
  }
  return out / sum;
}

__global__ void __launch_bounds__(kThreads) AttendRowHead(AttentionArgs args) {
  __shared__ float q[kMaxAttentionHeadDim];
  __shared__ SharedTile tiles[kAttentionSplits];
  __shared__ SharedSplits splits;
  const int32_t head_dim = args.kv.head_dim;
  const auto row = static_cast<int32_t>(blockIdx.x), thread = static_cast<int32_t>(threadIdx.x);
  const int32_t split = thread / kLanes, lane = thread % kLanes;
  const int64_t first_column = (int64_t{row} * gridDim.y + blockIdx.y) * head_dim;
  if (thread < head_dim) q[thread] = args.q.as<float>()[first_column + thread] * args.scale;
  __syncthreads();

  const Softmax softmax = AttendSplit(args, KeysOfRow(args, row), q, tiles[split]);
  if (lane == 0) {
    splits.max[split] = softmax.max;
    splits.sum[split] = softmax.sum;
  }
  for (int32_t v = 0; v < kDimsPerLane; ++v) splits.out[split][v * kLanes + lane] = softmax.out[v];
  __syncthreads();
  if (thread < head_dim) {
    args.out.as<uint16_t>()[first_column + thread] = Bf16FromFloat(MergedOutput(splits, thread));
  }
}

}  // namespace

void Attention(const AttentionArgs& args, cudaStream_t stream) {
  const int32_t head_dim = args.kv.head_dim;
  const int64_t num_columns = args.q.shape[1];
  FT_CHECK(args.q.dtype == DType::kF32 && args.out.dtype == DType::kBF16 && head_dim <= kMaxAttentionHeadDim);
  FT_CHECK(num_columns % (int64_t{args.kv.num_kv_heads} * head_dim) == 0 && args.out.shape[1] == num_columns);
  FT_CHECK(!args.window.has_value() || *args.window > 0);
  const dim3 grid(static_cast<unsigned>(args.batch.num_rows), static_cast<unsigned>(num_columns / head_dim));
  FT_CUDA_CHECK(Launch(AttendRowHead, {.grid = grid, .block = dim3(kThreads), .stream = stream}, args));
}

}  // namespace foretoken::kernels::cuda
