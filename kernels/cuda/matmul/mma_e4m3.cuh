// SPDX-License-Identifier: Apache-2.0
// The matrix unit on FP8: sums [16, 8] += a [16, 32] b [32, 8], e4m3 codes in, f32 sums.
//
// Of each matrix a lane l has some elements, with g = l / 4 and t = l % 4; a quad is four codes in 32 bits, the first
// in the low byte:
//
//   CodesA  16 rows of 32 k        quads[0]  row g      k 4 t ... 4 t + 3
//                                  quads[1]  row g + 8  k 4 t ... 4 t + 3
//                                  quads[2]  row g      k 4 t + 16 ... 4 t + 19
//                                  quads[3]  row g + 8  k 4 t + 16 ... 4 t + 19
//   CodesB  32 k of 8 columns      quads[0]  column g   k 4 t ... 4 t + 3
//                                  quads[1]  column g   k 4 t + 16 ... 4 t + 19
//
// So 16 k of a column are 16 bytes of memory, and ptx::LoadMatrices loads four such corners of 8 columns at a time. It
// is the layout of mma.m16n8k32 too, which is not used: nvcc 13.0 makes two f16 steps of it for the GPUs that we build
// for (sm_90a, sm_100; sm_80 lacks it), and elsewhere its sum is short of f32's bits. So codes are widened to f16,
// exactly, where they stand in registers, for two steps as mma.cuh's: one order and one rounding for every GPU.
// E1: as there, no element sees another row or column.
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

// A step's sides in f16, as FragmentA and FragmentB but for the order of the 16 k, which is the same in both.
struct F16FragmentA {
  uint32_t pairs[4];
};

struct F16FragmentB {
  uint32_t pairs[2];
};

// All lanes of a warp call it. One step of 16 onto every sum.
__device__ inline void MultiplyAdd(FragmentC& c, const F16FragmentA& a, const F16FragmentB& b) {
  ptx::MmaF16M16N8K16(c.sums, a.pairs, b.pairs);
}

// The first 16 k and the last.
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
