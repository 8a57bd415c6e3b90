// SPDX-License-Identifier: Apache-2.0
// One block per (row, head of q, k or v).
// Bytes moved: each element of qkv in once, q out once, k and v out once as bf16.
#include <cmath>

#include "kernels/check.h"
#include "kernels/cuda/attention/rope_store_kv.h"
#include "kernels/cuda/base/block_sum.cuh"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__device__ float MeanSquare(const float* head, int32_t head_dim) {
  __shared__ float scratch[kThreads];
  float sum = 0;
  for (int32_t d = threadIdx.x; d < head_dim; d += kThreads) sum = fmaf(head[d], head[d], sum);
  return BlockSum<kThreads>(sum, scratch) / static_cast<float>(head_dim);
}

__device__ void NormHead(float* head, int32_t head_dim, const float* gain, float mean_square, float eps) {
  const float inverse = 1.0f / sqrtf(mean_square + eps);
  for (int32_t d = threadIdx.x; d < head_dim; d += kThreads) head[d] = head[d] * inverse * gain[d];
}

// Rotates the pairs (head[i], head[i + R / 2]) by the angles of the row's position.
__device__ void Rotate(float* head, const RopeStoreKvArgs& args, int32_t position) {
  const int32_t half_dim = args.rotary_dim.value_or(args.kv.head_dim) / 2;
  for (int32_t i = threadIdx.x; i < half_dim; i += kThreads) {
    const float cos = args.cos[int64_t{position} * half_dim + i], sin = args.sin[int64_t{position} * half_dim + i];
    const float x = head[i], y = head[i + half_dim];
    head[i] = fmaf(-y, sin, x * cos);
    head[i + half_dim] = fmaf(x, sin, y * cos);
  }
}

__global__ void RopeStoreHead(RopeStoreKvArgs args) {
  __shared__ float head[kMaxRopeHeadDim];
  const KvCacheView& kv = args.kv;
  const int32_t head_dim = kv.head_dim, num_kv_heads = kv.num_kv_heads;
  const auto num_heads = static_cast<int32_t>(args.q.shape[1] / head_dim);
  const auto row = static_cast<int32_t>(blockIdx.x), head_idx = static_cast<int32_t>(blockIdx.y);
  const bool is_q = head_idx < num_heads, is_v = head_idx >= num_heads + num_kv_heads;
  const float* from = args.qkv.as<float>() + (int64_t{row} * gridDim.y + head_idx) * head_dim;
  for (int32_t d = threadIdx.x; d < head_dim; d += kThreads) head[d] = from[d];

  const float* gain = is_v ? nullptr : is_q ? args.q_gain : args.k_gain;
  if (gain != nullptr && args.mean_squares != nullptr) {
    const int32_t first_head = is_q ? 0 : num_heads;
    NormHead(head, head_dim, gain + (head_idx - first_head) * head_dim, args.mean_squares[2 * row + (is_q ? 0 : 1)],
             args.eps);
  } else if (gain != nullptr) {
    NormHead(head, head_dim, gain, MeanSquare(head, head_dim), args.eps);
  }
  __syncthreads();
  if (!is_v) Rotate(head, args, args.batch.positions[row]);
  __syncthreads();

  if (is_q) {
    float* q = args.q.as<float>() + (int64_t{row} * num_heads + head_idx) * head_dim;
    for (int32_t d = threadIdx.x; d < head_dim; d += kThreads) q[d] = head[d];
    return;
  }
  const int32_t kv_head = (head_idx - num_heads) % num_kv_heads;
  uint16_t* to = kv.part(args.layer, is_v ? 1 : 0) + kv.slot_offset(args.batch.slots[row], kv_head);
  for (int32_t d = threadIdx.x; d < head_dim; d += kThreads) to[d] = Bf16FromFloat(head[d]);
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
  const dim3 grid(static_cast<unsigned>(args.batch.num_rows), static_cast<unsigned>(num_columns / head_dim));
  FT_CUDA_CHECK(Launch(RopeStoreHead, {.grid = grid, .block = dim3(kThreads), .stream = stream}, args));
}

}  // namespace foretoken::kernels::cuda
