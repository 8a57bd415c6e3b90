// SPDX-License-Identifier: Apache-2.0
// The keyed Gumbel noise of tokens: see kernels/philox.h for words and counters.
//
//   u = (word + 1/2) 2^-32, rounded once to f32, at most 1 - 2^-24
//   E = -log1p(-u), an exponential variable; g = -log(E), |error of g| <= 2^-21 + 4 units in the last place of g
//
// The logarithm consists of operations that round alike on every machine, as exp in fixed_weight.cuh does.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/draw/row_batch.h"
#include "kernels/philox.h"

namespace foretoken::kernels::cuda {

inline constexpr float kLargestNoise = 22.9f;  // above g at u = 2^-33

// log(x) of a normal x > 0: x = 2^n m with m in [sqrt(1/2), sqrt(2)), log(m) = 2 artanh(s), s = (m - 1) / (m + 1). The
// series ends at s^9 / 9, because |s| <= 0.172.
__device__ inline float Log(float x) {
  constexpr uint32_t kSqrtHalf = 0x3f3504f3;
  const uint32_t above = std::bit_cast<uint32_t>(x) - kSqrtHalf;
  const auto n = static_cast<float>(static_cast<int32_t>(above) >> 23);
  const float m = std::bit_cast<float>((above & 0x7fffff) + kSqrtHalf);
  const float f = m - 1, s = f / (m + 1), z = s * s;
  float sum = 2.0f / 9;
  sum = fmaf(sum, z, 2.0f / 7);
  sum = fmaf(sum, z, 2.0f / 5);
  sum = fmaf(sum, z, 2.0f / 3);
  // 2 s = f - f s.
  const float low = fmaf(sum * z, s, -f * s);
  return fmaf(n, 0x1.62e400p-1f, f + fmaf(n, 0x1.7f7d1cp-20f, low));
}

__device__ inline float GumbelOf(uint32_t word) {
  // high * 2^16 and low + 1/2 are exact, so their sum is rounded once.
  const float high = static_cast<float>(word >> 16) * 0x1p16f, low = static_cast<float>(word & 0xffffu) + 0.5f;
  const float u = fminf((high + low) * 0x1p-32f, 1.0f - 0x1p-24f);
  // log1p(-u) = log(w) u / (1 - w) for w = 1 - u rounded. The rounding of w is in both factors, so it cancels.
  const float w = 1.0f - u;
  const float exponential = w == 1.0f ? u : -Log(w) * (u / (1.0f - w));
  return -Log(exponential);
}

// A bound of at least GumbelOf(word), for a few instructions: g <= -log(u), and log2 of a float is at least its bits
// read as a fixed-point number whose fraction is the mantissa. The 2^-12 covers every rounding on both sides.
__device__ inline float GumbelBound(uint32_t word) {
  constexpr float kLn2 = 0.693147181f;
  const auto half = static_cast<float>(word >> 1);  // u 2^31, nearly
  const auto bits = static_cast<float>(std::bit_cast<uint32_t>(half));
  return fmaf(-bits, kLn2 * 0x1p-23f, kLn2 * (127 + 31) + 0x1p-12f);
}

// The words of four tokens; `first_id` is a multiple of 4.
__device__ inline PhiloxBlock NoiseWords(const RowTask& task, int32_t first_id) {
  return Philox4x32(task.seed, {static_cast<uint32_t>(first_id) / 4, task.t, task.sample_index,
                                static_cast<uint32_t>(NoisePurpose::kTargetDraw)});
}

// The noise of one token.
__device__ inline float NoiseOf(const RowTask& task, int32_t id) {
  return GumbelOf(NoiseWords(task, id / 4 * 4)[id % 4]);
}

}  // namespace foretoken::kernels::cuda
