// SPDX-License-Identifier: Apache-2.0
// A row of bf16 as e4m3 codes times one scale, which is the largest magnitude over 448. The outputs of an FP8 weight
// and the rows that multiply it share this form. One block computes a row:
//
//   float scale = E4m3Scale<kThreads>(largest MagnitudeOf of the thread's elements);
//   code = E4m3CodeOf(element, scale);
//
// A row of zeros has scale 0 and codes of 0. A row with a NaN or an infinity has a scale that is not finite and codes
// of 0, so that its products are not finite either.
#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>

#include "kernels/cuda/base/block_fold.cuh"
#include "kernels/dtype.h"

namespace foretoken::kernels::cuda {

// The magnitude of a bf16 as an integer of the same order: an infinity is above all finite values, and a NaN above
// that.
__device__ inline uint32_t MagnitudeOf(uint16_t value) { return value & 0x7fffu; }

struct Larger {
  __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};

// Every thread of the block calls it and gets the row's scale.
template <int kThreads>
__device__ float E4m3Scale(uint32_t own_largest) {
  __shared__ uint32_t scratch[kThreads];
  const uint32_t largest = BlockFold<kThreads>(own_largest, Larger(), scratch);
  return FloatFromBf16(static_cast<uint16_t>(largest)) / kMaxE4m3;
}

// The code of element / scale, rounded to nearest, ties to even.
__device__ inline uint8_t E4m3CodeOf(uint16_t element, float scale) {
  return E4m3FromFloat(scale > 0 && scale <= FLT_MAX ? FloatFromBf16(element) / scale : 0);
}

}  // namespace foretoken::kernels::cuda
