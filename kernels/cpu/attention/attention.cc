// SPDX-License-Identifier: Apache-2.0
// A task is a tile of a segment's rows and one kv head. Its queries are up to kMaxQueries (row, head) pairs that read
// the same keys.
// Bytes moved: each K/V tile once per task. To widen and transpose a tile takes about as long as four queries take to
// use it. A tile of 64 positions and D = 64 is 32 KiB with its values, so it stays in the first-level caches.
#include "kernels/cpu/attention/attention.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/base/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/attention/kv_tile-inl.h"
#include "kernels/cpu/base/simd-inl.h"

#ifndef FORETOKEN_KERNELS_CPU_ATTENTION_CC_
#define FORETOKEN_KERNELS_CPU_ATTENTION_CC_
namespace foretoken::kernels::cpu {

struct AttentionTask {
  int32_t segment = 0;
  int32_t row_begin = 0;
  int32_t row_end = 0;
  int32_t kv_head = 0;
};

}  // namespace foretoken::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

inline constexpr size_t kTile = kAttentionTile;

// The running softmax of a task's queries. Arrays over queries have space for whole vectors.
struct Queries {
  size_t head_dim = 0;       // D
  size_t value_stride = 0;   // D rounded up to whole vectors
  float cap = 0;             // 0: none
  float* q = nullptr;        // [Q, D] scaled
  float* weights = nullptr;  // [Q, kTile] scores, then exp(score - max)
  float* out = nullptr;      // [Q, value_stride] weighted values so far
  float* sums = nullptr;     // [Q, 16] sum of weights so far, by lane
  float* max = nullptr;      // [Q] largest score so far
  float* decay = nullptr;    // [Q] exp(old max - new max)
};

// Scores of kRows queries against every column. Each score is one chain of additions over d.
template <int kRows>
HWY_ATTR void ScoreQueries(const Queries& queries, size_t first, const float* keys) {
  const size_t lanes = NumLanes();
  const size_t head_dim = queries.head_dim;
  const float* q = queries.q + first * head_dim;
  for (size_t column = 0; column < kTile; column += 4 * lanes) {
    FloatVec sums[kRows][4];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sums[r][v] = hn::Zero(kFloat);
    }
    for (size_t d = 0; d < head_dim; ++d) {
      const float* key = keys + d * kTile + column;
      const FloatVec key0 = hn::Load(kFloat, key), key1 = hn::Load(kFloat, key + lanes);
      const FloatVec key2 = hn::Load(kFloat, key + 2 * lanes), key3 = hn::Load(kFloat, key + 3 * lanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const FloatVec x = hn::Set(kFloat, q[r * head_dim + d]);
        sums[r][0] = hn::MulAdd(x, key0, sums[r][0]);
        sums[r][1] = hn::MulAdd(x, key1, sums[r][1]);
        sums[r][2] = hn::MulAdd(x, key2, sums[r][2]);
        sums[r][3] = hn::MulAdd(x, key3, sums[r][3]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        hn::Store(sums[r][v], kFloat, queries.weights + (first + r) * kTile + column + v * lanes);
      }
    }
  }
}

// out = out * decay + weights . values, for kRows queries and kVecs vectors of dimensions. Each element is one chain of
// additions over positions.
template <int kRows, int kVecs>
HWY_ATTR void AddValues(const Queries& queries, size_t first, const float* values, size_t begin, size_t end) {
  const size_t lanes = NumLanes();
  const size_t stride = queries.value_stride;
  float* out = queries.out + first * stride;
  FloatVec sums[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const FloatVec decay = hn::Set(kFloat, queries.decay[first + r]);
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::Mul(hn::Load(kFloat, out + r * stride + v * lanes), decay);
  }
  for (size_t j = begin; j < end; ++j) {
    FloatVec value[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) value[v] = hn::Load(kFloat, values + j * stride + v * lanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const FloatVec weight = hn::Set(kFloat, queries.weights[(first + r) * kTile + j]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(weight, value[v], sums[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) hn::Store(sums[r][v], kFloat, out + r * stride + v * lanes);
  }
}

template <int kRows>
HWY_ATTR void AddAllValues(const Queries& queries, size_t first, const float* values, size_t begin, size_t end) {
  const size_t lanes = NumLanes();
  size_t d = 0;
  for (; d + 4 * lanes <= queries.value_stride; d += 4 * lanes) {
    Queries part = queries;
    part.out += d;
    AddValues<kRows, 4>(part, first, values + d, begin, end);
  }
  for (; d < queries.value_stride; d += lanes) {
    Queries part = queries;
    part.out += d;
    AddValues<kRows, 1>(part, first, values + d, begin, end);
  }
}

// A score s becomes cap tanh(s / cap).
HWY_ATTR void CapScores(float cap, float* scores) {
  const FloatVec caps = hn::Set(kFloat, cap), inverse = hn::Set(kFloat, 1.0f / cap);
  for (size_t column = 0; column < kTile; column += NumLanes()) {
    const FloatVec score = hn::Mul(hn::Load(kFloat, scores + column), inverse);
    hn::Store(hn::Mul(hn::Tanh(kFloat, score), caps), kFloat, scores + column);
  }
}

// Hides columns outside [begin, end) and returns the largest score of the others.
HWY_ATTR float MaskScores(float* scores, size_t begin, size_t end) {
  const FloatVec lowest = hn::Set(kFloat, std::numeric_limits<float>::lowest());
  const FloatVec begins = hn::Set(kFloat, static_cast<float>(begin)), ends = hn::Set(kFloat, static_cast<float>(end));
  FloatVec max = lowest;
  for (size_t column = 0; column < kTile; column += NumLanes()) {
    const FloatVec index = hn::Iota(kFloat, static_cast<float>(column));
    const auto seen = hn::And(hn::Ge(index, begins), hn::Lt(index, ends));
    const FloatVec score = hn::IfThenElse(seen, hn::Load(kFloat, scores + column), lowest);
    hn::Store(score, kFloat, scores + column);
    max = hn::Max(max, score);
  }
  return hn::GetLane(hn::MaxOfLanes(kFloat, max));
}

// Turns scores into weights under the new maximum and adds them to the query's sum.
HWY_ATTR void WeighScores(const Queries& queries, size_t query, size_t begin, size_t end) {
  float* weights = queries.weights + query * kTile;
  const FloatVec max = hn::Set(kFloat, queries.max[query]);
  const FloatVec begins = hn::Set(kFloat, static_cast<float>(begin)), ends = hn::Set(kFloat, static_cast<float>(end));
  float* sums = queries.sums + query * 16;
  FloatVec sum = hn::Mul(hn::Load(kFloat, sums), hn::Set(kFloat, queries.decay[query]));
  for (size_t column = 0; column < kTile; column += NumLanes()) {
    const FloatVec index = hn::Iota(kFloat, static_cast<float>(column));
    const auto seen = hn::And(hn::Ge(index, begins), hn::Lt(index, ends));
    const FloatVec weight = hn::IfThenElseZero(seen, hn::Exp(kFloat, hn::Sub(hn::Load(kFloat, weights + column), max)));
    hn::Store(weight, kFloat, weights + column);
    sum = hn::Add(sum, weight);
  }
  hn::Store(sum, kFloat, sums);
}

// One tile for queries [first, last). All of them see its columns [begin, end).
HWY_ATTR void AttendTile(const Queries& queries, size_t first, size_t last, const KvTile& tile, size_t begin,
                         size_t end) {
  size_t query = first;
  for (; query + 4 <= last; query += 4) ScoreQueries<4>(queries, query, tile.keys);
  for (; query < last; ++query) ScoreQueries<1>(queries, query, tile.keys);

  for (query = first; query < last; ++query) {
    if (queries.cap > 0) CapScores(queries.cap, queries.weights + query * kTile);
    const float old_max = queries.max[query];
    queries.max[query] = std::max(old_max, MaskScores(queries.weights + query * kTile, begin, end));
    queries.decay[query] = old_max - queries.max[query];
  }
  for (query = first; query < last; query += NumLanes()) {
    hn::StoreU(hn::Exp(kFloat, hn::LoadU(kFloat, queries.decay + query)), kFloat, queries.decay + query);
  }
  for (query = first; query < last; ++query) WeighScores(queries, query, begin, end);

  for (query = first; query + 4 <= last; query += 4) AddAllValues<4>(queries, query, tile.values, begin, end);
  for (; query < last; ++query) AddAllValues<1>(queries, query, tile.values, begin, end);
}

struct Range {
  int32_t begin = 0;
  int32_t end = 0;
};

inline Range VisibleRange(const AttentionArgs& args, int32_t row) {
  const int32_t end = args.batch.positions[row] + 1;
  const int32_t counted_to = args.window_origins != nullptr ? args.window_origins[row] + 1 : end;
  return {args.window.has_value() ? std::max(0, counted_to - *args.window) : 0, end};
}

inline RowKeys KeysOfRow(const BatchView& batch, int32_t segment, int32_t row) {
  return {.block_table = batch.block_tables + batch.block_table_begins[segment],
          .ancestor_slots = batch.ancestor_slots + batch.ancestor_begins[row],
          .chain_len = batch.chain_lens[row]};
}

// Visits the tiles in order. A tile that lies in the chain of all rows, and that all rows see whole, is loaded once and
// used for all. Other tiles are loaded row after row.
HWY_ATTR void AttendRows(const AttentionArgs& args, const AttentionTask& task, const Queries& queries, KvTile& tile) {
  const size_t group = args.q.shape[1] / (args.kv.num_kv_heads * args.kv.head_dim);
  Range all = VisibleRange(args, task.row_begin);
  Range shared = {all.begin, args.batch.chain_lens[task.row_begin]};
  for (int32_t row = task.row_begin + 1; row < task.row_end; ++row) {
    const Range range = VisibleRange(args, row);
    all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
    shared = {std::max(shared.begin, range.begin), std::min(shared.end, args.batch.chain_lens[row])};
  }
  constexpr int32_t kStep = kAttentionTile;
  for (int32_t tile_begin = all.begin / kStep * kStep; tile_begin < all.end; tile_begin += kStep) {
    const int32_t tile_end = tile_begin + kStep;
    tile.loaded = 0;
    if (shared.begin <= tile_begin && tile_end <= shared.end) {
      LoadForRow(tile, KeysOfRow(args.batch, task.segment, task.row_begin), tile_begin, tile_begin, tile_end);
      AttendTile(queries, 0, (task.row_end - task.row_begin) * group, tile, 0, kTile);
      continue;
    }
    for (int32_t row = task.row_begin; row < task.row_end; ++row) {
      const Range range = VisibleRange(args, row);
      const int32_t begin = std::max(range.begin, tile_begin), end = std::min(range.end, tile_end);
      if (begin >= end) continue;
      LoadForRow(tile, KeysOfRow(args.batch, task.segment, row), tile_begin, begin, end);
      const size_t first = (row - task.row_begin) * group;
      AttendTile(queries, first, first + group, tile, begin - tile_begin, end - tile_begin);
    }
  }
}

inline size_t RoundUpTo16(size_t count) { return (count + 15) / 16 * 16; }

// Divides the thread's workspace among the arrays. Padding and running values start as zeros.
HWY_ATTR void CarveScratch(size_t num_queries, Queries& queries, KvTile& tile) {
  const size_t head_dim = queries.head_dim, stride = queries.value_stride, padded = RoundUpTo16(num_queries) + 16;
  const size_t staging = RoundUpTo16(head_dim / 2 * kKvBlockSize);
  const size_t count = num_queries * (RoundUpTo16(head_dim) + kTile + stride + 16) + 2 * padded + head_dim * kTile +
                       kTile * stride + 2 * staging;
  float* next = ThreadWorkspace<float>(count);
  const auto take = [&next](size_t size) { return std::exchange(next, next + size); };
  tile.keys = take(head_dim * kTile);
  tile.values = take(kTile * stride);
  tile.staging = reinterpret_cast<uint32_t*>(take(staging));
  tile.codes = reinterpret_cast<uint16_t*>(take(staging));
  queries.weights = take(num_queries * kTile);
  queries.out = take(num_queries * stride);
  queries.sums = take(num_queries * 16);
  queries.max = take(padded);
  queries.decay = take(padded);
  queries.q = take(num_queries * head_dim);
  if (stride != head_dim) std::fill_n(tile.values, kTile * stride, 0.0f);
  std::fill_n(queries.out, num_queries * stride, 0.0f);
  std::fill_n(queries.sums, num_queries * 16, 0.0f);
  std::fill_n(queries.max, padded, std::numeric_limits<float>::lowest());
  std::fill_n(queries.decay, padded, 0.0f);
}

// out / sum as bf16. A sink adds to the sum alone.
HWY_ATTR void StoreOutput(const Queries& queries, size_t query, const float* sink, uint16_t* out) {
  const size_t lanes = NumLanes();
  float sum = hn::GetLane(hn::SumOfLanes(kFloat, hn::Load(kFloat, queries.sums + query * 16)));
  if (sink != nullptr) {
    // A sink that is larger than every score by 88 takes all of the weight.
    const float above = std::min(*sink - queries.max[query], 88.0f);
    sum += hn::GetLane(hn::Exp(kFloat, hn::Set(kFloat, above)));
  }
  const FloatVec inverse = hn::Set(kFloat, 1.0f / sum);
  const float* from = queries.out + query * queries.value_stride;
  for (size_t d = 0; d < queries.head_dim; d += lanes) {
    const FloatVec value = hn::Mul(hn::Load(kFloat, from + d), inverse);
    if (d + lanes <= queries.head_dim) {
      StoreBf16(value, out + d);
    } else {
      StoreBf16Prefix(value, out + d, queries.head_dim - d);
    }
  }
}

void AttendTask(const AttentionArgs& args, const AttentionTask& task) {
  const KvCacheView& kv = args.kv;
  const size_t head_dim = kv.head_dim;
  const size_t num_columns = args.q.shape[1];
  const size_t group = num_columns / (kv.num_kv_heads * head_dim);
  const size_t num_queries = (task.row_end - task.row_begin) * group;
  const size_t value_stride = (head_dim + NumLanes() - 1) / NumLanes() * NumLanes();
  Queries queries{.head_dim = head_dim, .value_stride = value_stride, .cap = args.cap.value_or(0.0f)};
  KvTile tile{
      .kv = kv, .layer = args.layer, .kv_head = task.kv_head, .head_dim = head_dim, .value_stride = value_stride};
  CarveScratch(num_queries, queries, tile);
  const auto first_column = [&](size_t query) {
    return (task.row_begin + query / group) * num_columns + (task.kv_head * group + query % group) * head_dim;
  };
  for (size_t query = 0; query < num_queries; ++query) {
    const float* q = args.q.as<float>() + first_column(query);
    for (size_t d = 0; d < head_dim; ++d) queries.q[query * head_dim + d] = q[d] * args.scale;
  }
  AttendRows(args, task, queries, tile);
  for (size_t query = 0; query < num_queries; ++query) {
    const float* sink = args.sinks == nullptr ? nullptr : args.sinks + task.kv_head * group + query % group;
    StoreOutput(queries, query, sink, args.out.as<uint16_t>() + first_column(query));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(AttendTask);

void Attention(const AttentionArgs& args, ThreadPool& pool) {
  const BatchView& batch = args.batch;
  const int64_t num_columns = args.q.shape[1];
  const int64_t kv_columns = int64_t{args.kv.num_kv_heads} * args.kv.head_dim;
  FT_CHECK(args.q.dtype == DType::kF32 && args.out.dtype == DType::kBF16);
  FT_CHECK(num_columns % kv_columns == 0 && args.out.shape[1] == num_columns);
  FT_CHECK(!args.window.has_value() || *args.window > 0);
  FT_CHECK(!args.cap.has_value() || *args.cap > 0);
  constexpr int64_t kMaxQueries = 64;
  const auto rows_per_task = static_cast<int32_t>(std::max<int64_t>(1, kMaxQueries / (num_columns / kv_columns)));
  std::vector<AttentionTask> tasks;
  for (int32_t segment = 0; segment < batch.num_segments; ++segment) {
    const int32_t end = batch.segment_begins[segment + 1];
    for (int32_t row = batch.segment_begins[segment]; row < end; row += rows_per_task) {
      for (int32_t head = 0; head < args.kv.num_kv_heads; ++head) {
        tasks.push_back({segment, row, std::min(end, row + rows_per_task), head});
      }
    }
  }
  pool.ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t task, int) {
    HWY_DYNAMIC_DISPATCH(AttendTask)(args, tasks[task]);
  });
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
