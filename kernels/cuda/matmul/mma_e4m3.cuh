// SPDX-License-Identifier: Apache-2.0
// The matrix unit on FP8: sums [16, 8] += a [16, 32] b [32, 8], e4m3 codes in, f32 sums.
//
// A lane l holds some elements of each matrix, with g = l / 4 and t = l % 4. A quad is four codes in 32 bits, the first
// in the low byte:
//
//   CodesA  16 rows of 32 k        quads[0]  row g      k 4 t ... 4 t + 3
//                                  quads[1]  row g + 8  k 4 t ... 4 t + 3
//                                  quads[2]  row g      k 4 t + 16 ... 4 t + 19
//                                  quads[3]  row g + 8  k 4 t + 16 ... 4 t + 19
//   CodesB  32 k of 8 columns      quads[0]  column g   k 4 t ... 4 t + 3
//                                  quads[1]  column g   k 4 t + 16 ... 4 t + 19
//
// So 16 k of a column are 16 bytes of memory, and ptx::LoadMatrices loads four such corners of 8 columns at a time. The
// instruction mma.m16n8k32 has this layout too. We do not use it: nvcc 13.0 turns it into two f16 steps for the GPUs
// that we build for (sm_90a, sm_100; sm_80 lacks it), and elsewhere its sums have fewer bits than f32. Instead codes
// are widened to f16 in registers, exactly, for two steps as in mma.cuh. So every GPU has one order and one rounding.
// E1: as in mma.cuh, no element depends on another row or column.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/base/mma.cuh"
#include "kernels/cuda/base/ptx.cuh"

namespace foretoken::kernels::cuda {

struct CodesA {
  uint32_t quads[4];
};

struct CodesB {
  uint32_t quads[2];
};

// A step's two sides in f16, as FragmentA and FragmentB, except for the order of the 16 k, which is the same on both
// sides.
struct F16FragmentA {
  uint32_t pairs[4];
};

struct F16FragmentB {
  uint32_t pairs[2];
};

// All lanes of a warp call it. Adds one step of 16 to every sum.
__device__ inline void MultiplyAdd(FragmentC& c, const F16FragmentA& a, const F16FragmentB& b) {
  ptx::MmaF16M16N8K16(c.sums, a.pairs, b.pairs);
}

// Returns the first 16 k and the last 16 k.
__device__ inline void WidenE4m3(const CodesA& a, F16FragmentA (&steps)[2]) {
#pragma unroll
  for (int quad = 0; quad < 4; ++quad) {
    uint32_t(&pairs)[4] = steps[quad / 2].pairs;
    pairs[quad % 2] = ptx::F16PairFromE4m3(a.quads[quad] & 0xffffu);
    pairs[quad % 2 + 2] = ptx::F16PairFromE4m3(a.quads[quad] >> 16);
  }
}
__device__ inline void WidenE4m3(const CodesB& b, F16FragmentB (&steps)[2]) {
#pragma unroll
  for (int quad = 0; quad < 2; ++quad) {
    steps[quad].pairs[0] = ptx::F16PairFromE4m3(b.quads[quad] & 0xffffu);
    steps[quad].pairs[1] = ptx::F16PairFromE4m3(b.quads[quad] >> 16);
  }
}

}  // namespace foretoken::kernels::cuda
