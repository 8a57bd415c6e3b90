// SPDX-License-Identifier: Apache-2.0
// The order of cuts as an order of integers: value descending, id ascending. Never for NaN.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

namespace foretoken::kernels::cuda {

// Smaller for larger values. Both zeros are one value.
__device__ inline uint32_t ValueKey(float x) {
  const auto bits = std::bit_cast<uint32_t>(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? bits : ~(bits | 0x80000000u);
}

__device__ inline float ValueOfKey(uint32_t key) {
  return std::bit_cast<float>((key & 0x80000000u) != 0 ? key : ~key & 0x7fffffffu);
}

// Smaller for tokens that come first; never 0 for a finite value.
__device__ inline uint64_t TokenKey(float x, int32_t id) {
  return uint64_t{ValueKey(x)} << 32 | static_cast<uint32_t>(id);
}

__device__ inline float ValueOfToken(uint64_t key) { return ValueOfKey(static_cast<uint32_t>(key >> 32)); }
__device__ inline int32_t IdOfToken(uint64_t key) { return static_cast<int32_t>(key & 0xffffffffu); }

}  // namespace foretoken::kernels::cuda
