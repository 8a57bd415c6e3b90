// SPDX-License-Identifier: Apache-2.0
// The arithmetic of attention: a warp's 16 queries, which are the rows of its products, and a tile of keys. Every visit
// to a tile uses this arithmetic.
//
// A query's sums are in rows of fragments that belong to it alone. A tile that the query does not see leaves them as
// they are, bit for bit: its weights are 0, its maximum stays, and its sums are multiplied by 1. So any queries may
// share a warp, and a warp may visit a tile for one of them only.
#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_keys.cuh"
#include "kernels/cuda/attention/attention_queries.cuh"
#include "kernels/cuda/base/mma.cuh"
#include "kernels/dtype.h"

namespace foretoken::kernels::cuda {

inline constexpr float kLog2E = 1.44269504f;
inline constexpr int kTileHalves = kAttentionTile / kMmaDepth;
static_assert(kAttentionTile % kMmaDepth == 0 && kMmaDepth == 2 * kMmaColumns);

// Folds over the lanes that have the same query. Each lane gets the same bits, since a + b is b + a.
__device__ inline float QuadMax(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
__device__ inline float QuadSum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// The running softmax of a lane's queries over kSteps * kMmaDepth dimensions. Maxima are in units of log2.
template <int kSteps>
struct TileSoftmax {
  float max[kLaneQueries] = {-FLT_MAX, -FLT_MAX};
  float sum[kLaneQueries] = {};  // over the lane's own columns
  FragmentC out[2 * kSteps] = {};
};

template <int kSteps>
struct TileQueries {
  FragmentA q[kSteps];
  float scale = 0;  // turns scores into units of log2
  float cap = 0;    // of scaled scores, in units of log2; 0: none
};

// True if all of the warp's queries see the whole tile.
__device__ inline bool SeeWholeTile(int32_t tile_begin, const Positions (&visible)[kLaneQueries]) {
  const auto sees_all = [&](const Positions& seen) {
    return seen.begin <= tile_begin && tile_begin + kAttentionTile <= seen.end;
  };
  return !__any_sync(0xffffffffu, !sees_all(visible[0]) || !sees_all(visible[1]));
}

// q . k, scaled. Each score is a chain over the dimensions.
template <int kSteps>
__device__ void ScoreTile(const TileQueries<kSteps>& queries, const SharedTile<kSteps>& keys,
                          FragmentC (&scores)[2 * kTileHalves]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int half = 0; half < kTileHalves; ++half) {
      FragmentB low, high;
      keys.LoadK(half, step, low, high);
      MultiplyAdd(scores[2 * half], queries.q[step], low);
      MultiplyAdd(scores[2 * half + 1], queries.q[step], high);
    }
  }
#pragma unroll
  for (FragmentC& score : scores) {
#pragma unroll
    for (float& sum : score.sums) sum *= queries.scale;
  }
  if (queries.cap == 0) return;
#pragma unroll
  for (FragmentC& score : scores) {
#pragma unroll
    for (float& sum : score.sums) sum = queries.cap * tanhf(sum / queries.cap);
  }
}

// Makes the scores of keys that a query does not see minus infinity.
__device__ inline void HideScores(int32_t tile_begin, const Positions (&visible)[kLaneQueries],
                                  FragmentC (&scores)[2 * kTileHalves]) {
  const int32_t first_column = tile_begin + static_cast<int32_t>(threadIdx.x) % kQuadLanes * 2;
#pragma unroll
  for (int i = 0; i < 2 * kTileHalves; ++i) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (!visible[c / 2].Has(first_column + i * kMmaColumns + c % 2)) scores[i].sums[c] = -INFINITY;
    }
  }
}

// Raises the maxima to the scores' maxima, and returns the factors by which the present sums shrink. A tile that a
// query does not see has no score above the query's maximum, so that maximum stays.
template <int kSteps>
__device__ void RaiseMaxima(const FragmentC (&scores)[2 * kTileHalves], TileSoftmax<kSteps>& softmax,
                            float (&decay)[kLaneQueries]) {
#pragma unroll
  for (int query = 0; query < kLaneQueries; ++query) {
    float max = softmax.max[query];
#pragma unroll
    for (const FragmentC& score : scores) max = fmaxf(max, fmaxf(score.sums[2 * query], score.sums[2 * query + 1]));
    max = QuadMax(max);
    decay[query] = exp2f(softmax.max[query] - max);
    softmax.max[query] = max;
  }
}

// Turns scores into weights, rounds them to bf16, and adds the rounded weights to the sums.
template <int kSteps>
__device__ void WeighTile(FragmentC (&scores)[2 * kTileHalves], const float (&decay)[kLaneQueries],
                          FragmentA (&weights)[kTileHalves], TileSoftmax<kSteps>& softmax) {
#pragma unroll
  for (FragmentC& score : scores) {
#pragma unroll
    for (int c = 0; c < 4; ++c) score.sums[c] = exp2f(score.sums[c] - softmax.max[c / 2]);
  }
#pragma unroll
  for (int half = 0; half < kTileHalves; ++half) {
    weights[half] = FragmentFromSums(scores[2 * half], scores[2 * half + 1]);
  }
#pragma unroll
  for (int query = 0; query < kLaneQueries; ++query) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 2 * kTileHalves; ++i) {
      const uint32_t pair = weights[i / 2].pairs[i % 2 * 2 + query];
      sum += FloatFromBf16(static_cast<uint16_t>(pair)) + FloatFromBf16(static_cast<uint16_t>(pair >> 16));
    }
    softmax.sum[query] = fmaf(softmax.sum[query], decay[query], sum);
  }
}

// Multiplies the outputs by the factors. The maxima mostly stay, and then there is nothing to do.
template <int kSteps>
__device__ void ShrinkOutputs(const float (&decay)[kLaneQueries], TileSoftmax<kSteps>& softmax) {
  if (!__any_sync(0xffffffffu, decay[0] != 1 || decay[1] != 1)) return;
#pragma unroll
  for (FragmentC& out : softmax.out) {
#pragma unroll
    for (int c = 0; c < 4; ++c) out.sums[c] *= decay[c / 2];
  }
}

// True if one of a pair of bf16 is an infinity or a NaN: all bits of its exponent are ones.
__device__ inline bool HasNonFinite(uint32_t pair) { return (((pair & 0x7f807f80u) + 0x00800080u) & 0x80008000u) != 0; }

// False if one product with the tile's V may serve queries that see a part of it. A weight of 0 hides a key that a
// query does not see, unless the key's V is not finite.
template <int kSteps>
__device__ bool HasNonFiniteV(const SharedTile<kSteps>& keys) {
  bool has_non_finite = false;
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int half = 0; half < kTileHalves; ++half) {
      FragmentB low, high;
      keys.LoadV(half, step, low, high);
      has_non_finite = has_non_finite || HasNonFinite(low.pairs[0]) || HasNonFinite(low.pairs[1]) ||
                       HasNonFinite(high.pairs[0]) || HasNonFinite(high.pairs[1]);
    }
  }
  return __any_sync(0xffffffffu, has_non_finite);
}

// Sets the keys outside of `seen` to zero, in one half of a tile. Positions in `seen` count from the tile's first key.
__device__ inline void HideKeys(const Positions& seen, int half, FragmentB& v) {
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int key = half * kMmaDepth + pair * 8 + static_cast<int>(threadIdx.x) % kQuadLanes * 2;
    if (!seen.Has(key)) v.pairs[pair] &= 0xffff0000u;
    if (!seen.Has(key + 1)) v.pairs[pair] &= 0x0000ffffu;
  }
}

// Adds V if queries may not share a product. Computes one product per query and keeps only that query's row. Works step
// by step, so that registers hold only one step's sums twice.
template <int kSteps>
__device__ void AddVOneByOne(const SharedTile<kSteps>& keys, int32_t tile_begin,
                             const Positions (&visible)[kLaneQueries], const FragmentA (&weights)[kTileHalves],
                             TileSoftmax<kSteps>& softmax) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll 1
    for (int row = 0; row < kMmaRows; ++row) {
      const bool is_lanes = row % 8 == static_cast<int>(threadIdx.x) % kWarpThreads / kQuadLanes;
      const Positions of_row = is_lanes ? (row < 8 ? visible[0] : visible[1]) : Positions{};
      const Positions seen = UnionOfWarp(of_row).CountedFrom(tile_begin);
      FragmentC sums[2] = {softmax.out[2 * step], softmax.out[2 * step + 1]};
#pragma unroll 1
      for (int half = 0; half < kTileHalves; ++half) {
        FragmentB low, high;
        keys.LoadV(half, step, low, high);
        HideKeys(seen, half, low);
        HideKeys(seen, half, high);
        const FragmentA of_half = half == 0 ? weights[0] : weights[1];
        MultiplyAdd(sums[0], of_half, low);
        MultiplyAdd(sums[1], of_half, high);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (is_lanes && i % 4 / 2 == row / 8) softmax.out[2 * step + i / 4].sums[i % 4] = sums[i / 4].sums[i % 4];
      }
    }
  }
}

template <int kSteps>
__device__ void AddV(const SharedTile<kSteps>& keys, const FragmentA (&weights)[kTileHalves],
                     TileSoftmax<kSteps>& softmax) {
#pragma unroll
  for (int half = 0; half < kTileHalves; ++half) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      FragmentB low, high;
      keys.LoadV(half, step, low, high);
      MultiplyAdd(softmax.out[2 * step], weights[half], low);
      MultiplyAdd(softmax.out[2 * step + 1], weights[half], high);
    }
  }
}

// Adds the tile that begins at position `tile_begin`. Query i sees the part `visible[i]`.
template <int kSteps>
__device__ void AttendTile(const TileQueries<kSteps>& queries, const SharedTile<kSteps>& keys, int32_t tile_begin,
                           const Positions (&visible)[kLaneQueries], TileSoftmax<kSteps>& softmax) {
  FragmentC scores[2 * kTileHalves] = {};
  FragmentA weights[kTileHalves];
  float decay[kLaneQueries];
  const bool is_whole = SeeWholeTile(tile_begin, visible);
  ScoreTile(queries, keys, scores);
  if (!is_whole) HideScores(tile_begin, visible, scores);
  RaiseMaxima(scores, softmax, decay);
  WeighTile(scores, decay, weights, softmax);
  ShrinkOutputs(decay, softmax);
  if (is_whole || !HasNonFiniteV(keys)) {
    AddV(keys, weights, softmax);
  } else {
    AddVOneByOne(keys, tile_begin, visible, weights, softmax);
  }
}

// A query's softmax over several splits, which are added in order.
struct MergedSoftmax {
  float max = -FLT_MAX;
  float sum = 0;

  struct Factors {
    float kept = 0;   // factor of the present sums
    float added = 0;  // factor of the split's sums
    __device__ float Merge(float out, float split_out) const { return fmaf(split_out, added, out * kept); }
  };
  __device__ Factors Add(float split_max, float split_sum) {
    const float new_max = fmaxf(max, split_max);
    const Factors factors{exp2f(max - new_max), exp2f(split_max - new_max)};
    max = new_max;
    sum = factors.Merge(sum, split_sum);
    return factors;
  }
  // Adds a score without a value, after all splits. Returns the factor of the present sums.
  __device__ float AddSink(float sink) { return Add(sink * kLog2E, 1.0f).kept; }
  // Never a negative zero: the sign of an empty sum may depend on keys that the query does not see.
  __device__ float Output(float out) const { return out / sum + 0.0f; }
};

}  // namespace foretoken::kernels::cuda
