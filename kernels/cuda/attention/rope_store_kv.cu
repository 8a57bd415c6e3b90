// SPDX-License-Identifier: Apache-2.0
// One warp per (row, head of q, k or v), four heads to a block.
// Bytes moved: each element of qkv in once, q out once, k and v out once as they are kept.
#include <bit>
#include <cmath>

#include "kernels/check.h"
#include "kernels/cuda/attention/rope_store_kv.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/dtype.h"
#include "kernels/quantize.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kLanes = 32;
constexpr int kBlockHeads = 4;

// A head's values are summed as by 128 threads, each with every 128th value: first in each thread, then thread i with
// thread i + 64, then i + 32, ... A lane has four of these threads.
__device__ float MeanSquare(const float* head, int32_t head_dim, int lane) {
  constexpr int kThreads = 128, kOfLane = kThreads / kLanes;
  float sums[kOfLane] = {};
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    for (int32_t d = lane + i * kLanes; d < head_dim; d += kThreads) sums[i] = fmaf(head[d], head[d], sums[i]);
  }
  float sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
#pragma unroll
  for (int width = kLanes / 2; width > 0; width /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, width);
  return sum / static_cast<float>(head_dim);
}

__device__ void NormHead(float* head, int32_t head_dim, const float* gain, float mean_square, float eps, int lane) {
  const float inverse = 1.0f / sqrtf(mean_square + eps);
  for (int32_t d = lane; d < head_dim; d += kLanes) head[d] = head[d] * inverse * gain[d];
}

// Rotates the pairs (head[i], head[i + R / 2]) by the angles of the row's position.
__device__ void Rotate(float* head, const RopeStoreKvArgs& args, int32_t position, int lane) {
  const int32_t half_dim = args.rotary_dim.value_or(args.kv.head_dim) / 2;
  for (int32_t i = lane; i < half_dim; i += kLanes) {
    const float cos = args.cos[int64_t{position} * half_dim + i], sin = args.sin[int64_t{position} * half_dim + i];
    const float x = head[i], y = head[i + half_dim];
    head[i] = fmaf(-y, sin, x * cos);
    head[i + half_dim] = fmaf(x, sin, y * cos);
  }
}

// Starts all reads of the head before it needs the first. nvcc makes no branch of a condition whose other value is a
// constant.
__device__ void LoadHead(const float* from, int32_t head_dim, int lane, float* head) {
  float values[kMaxRopeHeadDim / kLanes];
#pragma unroll
  for (int i = 0; i < kMaxRopeHeadDim / kLanes; ++i) {
    values[i] = lane + i * kLanes < head_dim ? from[lane + i * kLanes] : 0;
  }
#pragma unroll
  for (int i = 0; i < kMaxRopeHeadDim / kLanes; ++i) head[lane + i * kLanes] = values[i];
}

// As QuantizeKv.
__device__ void StoreCodes(const float* head, const KvCacheView& kv, int lane, uint8_t* codes, float* scale) {
  int32_t max_bits = 0;
  for (int32_t d = lane; d < kv.head_dim; d += kLanes) {
    const int32_t bits = std::bit_cast<int32_t>(head[d]) & 0x7fffffff;
    max_bits = bits > max_bits ? bits : max_bits;
  }
  max_bits = __reduce_max_sync(0xffffffffu, max_bits);
  const bool is_int8 = kv.dtype == KvCacheDtype::kInt8;
  const Rounding rounding = RoundingTo(is_int8 ? kMaxInt8 : kMaxE4m3, static_cast<uint32_t>(max_bits));
  if (lane == 0) *scale = rounding.scale;
  for (int32_t d = lane; d < kv.head_dim; d += kLanes) {
    const float value = rounding.scale > 0 ? head[d] * rounding.inverse : 0;
    const float integer = fminf(kMaxInt8, fmaxf(-kMaxInt8, rintf(value)));
    codes[d] = is_int8 ? static_cast<uint8_t>(static_cast<int8_t>(integer)) : E4m3FromFloat(value);
  }
}

__global__ void __launch_bounds__(kBlockHeads* kLanes) RopeStoreHeads(RopeStoreKvArgs args) {
  __shared__ float heads[kBlockHeads][kMaxRopeHeadDim];
  const KvCacheView& kv = args.kv;
  const int32_t head_dim = kv.head_dim, num_kv_heads = kv.num_kv_heads;
  const auto num_heads = static_cast<int32_t>(args.q.shape[1] / head_dim);
  const int lane = static_cast<int>(threadIdx.x) % kLanes, warp = static_cast<int>(threadIdx.x) / kLanes;
  const auto row = static_cast<int32_t>(blockIdx.x);
  const int32_t head_idx = static_cast<int32_t>(blockIdx.y) * kBlockHeads + warp;
  if (head_idx >= num_heads + 2 * num_kv_heads) return;
  const bool is_q = head_idx < num_heads, is_v = head_idx >= num_heads + num_kv_heads;
  const int32_t position = args.batch.positions[row];
  float* const head = heads[warp];
  LoadHead(args.qkv.as<float>() + (int64_t{row} * (num_heads + 2 * num_kv_heads) + head_idx) * head_dim, head_dim, lane,
           head);
  __syncwarp();

  const float* gain = is_v ? nullptr : is_q ? args.q_gain : args.k_gain;
  if (gain != nullptr && args.mean_squares != nullptr) {
    const int32_t first_head = is_q ? 0 : num_heads;
    NormHead(head, head_dim, gain + (head_idx - first_head) * head_dim, args.mean_squares[2 * row + (is_q ? 0 : 1)],
             args.eps, lane);
  } else if (gain != nullptr) {
    NormHead(head, head_dim, gain, MeanSquare(head, head_dim, lane), args.eps, lane);
  }
  __syncwarp();
  if (!is_v) Rotate(head, args, position, lane);
  __syncwarp();

  if (is_q) {
    float* q = args.q.as<float>() + (int64_t{row} * num_heads + head_idx) * head_dim;
    for (int32_t d = lane; d < head_dim; d += kLanes) q[d] = head[d];
    return;
  }
  const int32_t kv_head = (head_idx - num_heads) % num_kv_heads;
  const int32_t part = is_v ? 1 : 0, slot = args.batch.slots[row];
  uint8_t* const elements = kv.elements(args.layer, part, slot, kv_head);
  if (kv.has_scales()) return StoreCodes(head, kv, lane, elements, kv.scale(args.layer, part, slot, kv_head));
  auto* const to = reinterpret_cast<uint16_t*>(elements);
  for (int32_t d = lane; d < head_dim; d += kLanes) to[d] = Bf16FromFloat(head[d]);
}

}  // namespace

void RopeStoreKv(const RopeStoreKvArgs& args, cudaStream_t stream) {
  const int32_t head_dim = args.kv.head_dim;
  const int64_t num_columns = args.qkv.shape[1];
  FT_CHECK(args.qkv.dtype == DType::kF32 && args.q.dtype == DType::kF32);
  FT_CHECK(head_dim % 2 == 0 && head_dim <= kMaxRopeHeadDim);
  const int32_t rotary_dim = args.rotary_dim.value_or(head_dim);
  FT_CHECK(rotary_dim >= 0 && rotary_dim <= head_dim && rotary_dim % 2 == 0);
  FT_CHECK(num_columns == args.q.shape[1] + int64_t{2} * args.kv.num_kv_heads * head_dim);
  const int64_t num_blocks = (num_columns / head_dim + kBlockHeads - 1) / kBlockHeads;
  const dim3 grid(static_cast<unsigned>(args.batch.num_rows), static_cast<unsigned>(num_blocks));
  FT_CUDA_CHECK(Launch(RopeStoreHeads, {.grid = grid, .block = dim3(kBlockHeads * kLanes), .stream = stream}, args));
}

}  // namespace foretoken::kernels::cuda
