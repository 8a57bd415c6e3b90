// SPDX-License-Identifier: Apache-2.0
// The matrix unit, a warp at a time: sums [16, 8] += a [16, 16] b [16, 8], bf16 in, f32 sums.
//
//   Fragment sums{}, a = ..., b = ...;
//   MultiplyAdd(sums, a, b);
//
// A lane l holds some elements of each matrix, with g = l / 4 and t = l % 4. A pair is two bf16 in 32 bits, the first
// in the low half:
//
//   FragmentA  16 rows of 16 k        pairs[0]  row g      k 2 t, 2 t + 1
//                                     pairs[1]  row g + 8  k 2 t, 2 t + 1
//                                     pairs[2]  row g      k 2 t + 8, 2 t + 9
//                                     pairs[3]  row g + 8  k 2 t + 8, 2 t + 9
//   FragmentB  16 k of 8 columns      pairs[0]  column g   k 2 t, 2 t + 1
//                                     pairs[1]  column g   k 2 t + 8, 2 t + 9
//   FragmentC  16 rows of 8 columns   sums[0], sums[1]  row g      columns 2 t, 2 t + 1
//                                     sums[2], sums[3]  row g + 8  columns 2 t, 2 t + 1
//
// Where k runs along memory (a row of A, a column of B), a pair is a plain 32-bit load, and ptx::LoadMatrices loads
// four such 8 x 8 corners at a time. Where rows or columns run along memory, ptx::LoadTransposedMatrices does. The sums
// of two neighbouring FragmentC, rounded, are a FragmentA: their columns are its k (FragmentFromSums).
//
// E1: every product is exact. A step adds its 16 products and the sum so far in an order of the GPU's own. The order is
// fixed for the instruction and is the same for every row and column, and no element depends on another row or column.
// Source: NVIDIA, "Parallel Thread Execution ISA", mma.m16n8k16.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/base/ptx.cuh"

namespace foretoken::kernels::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr int kMmaRows = 16;
inline constexpr int kMmaColumns = 8;
inline constexpr int kMmaDepth = 16;

struct FragmentA {
  uint32_t pairs[4];
};

struct FragmentB {
  uint32_t pairs[2];
};

struct FragmentC {
  float sums[4];
};

// All lanes of a warp call it. Adds one step of 16 to every sum.
__device__ inline void MultiplyAdd(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  ptx::MmaM16N8K16(c.sums, a.pairs, b.pairs);
}

// Turns the sums of columns [0, 8) and [8, 16) into the left side of another product.
__device__ inline FragmentA FragmentFromSums(const FragmentC& low, const FragmentC& high) {
  return {{ptx::Bf16Pair(low.sums[0], low.sums[1]), ptx::Bf16Pair(low.sums[2], low.sums[3]),
           ptx::Bf16Pair(high.sums[0], high.sums[1]), ptx::Bf16Pair(high.sums[2], high.sums[3])}};
}

}  // namespace foretoken::kernels::cuda
