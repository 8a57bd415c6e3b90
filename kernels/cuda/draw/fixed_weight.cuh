// SPDX-License-Identifier: Apache-2.0
// The weight of a token, exp((x - max) / temperature), as an integer: a multiple of 2^-44 of the largest weight in a
// row, rounded down. For sums of integers the order does not matter: tiles, atomics and sums that are corrected later
// all give the same total, bit for bit. A weight loses less than 2^-44, and a vocabulary of 128k tokens together less
// than 2^-27 of the largest weight. This is less than the error of exp itself. A sum has room for 2^19 tokens.
//
// exp consists of additions, multiplications and fused multiply-adds, which round alike on every machine. So kernels
// have the same bits on emulated blocks and on a GPU. Its relative error is at most 2^-22.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

inline constexpr float kWeightOne = 0x1p44f;

// e^x for x in [-64, 0]: 2^n e^r with |r| <= log(2) / 2, by Taylor's polynomial up to r^7 / 7!.
__device__ inline float ExpOfNegative(float x) {
  const float n = rintf(x * 0x1.715476p+0f);
  const float r = fmaf(n, 0x1.05c610p-29f, fmaf(n, -0x1.62e430p-1f, x));
  float sum = 1.0f / 5040;
  sum = fmaf(sum, r, 1.0f / 720);
  sum = fmaf(sum, r, 1.0f / 120);
  sum = fmaf(sum, r, 1.0f / 24);
  sum = fmaf(sum, r, 1.0f / 6);
  sum = fmaf(sum, r, 0.5f);
  sum = fmaf(sum, r, 1.0f);
  sum = fmaf(sum, r, 1.0f);
  return sum * std::bit_cast<float>(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
}

// `x` is at most `max`; -inf has weight 0.
__device__ inline FixedWeight WeightOf(float x, float max, float inverse_temperature) {
  const float scaled = (x - max) * inverse_temperature;
  if (!(scaled > -31.0f)) return 0;  // below 2^-44
  return static_cast<FixedWeight>(ExpOfNegative(scaled) * kWeightOne);
}

}  // namespace foretoken::kernels::cuda
