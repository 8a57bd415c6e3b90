// SPDX-License-Identifier: Apache-2.0
// The bins into which a search divides values, pass by pass. A bin holds larger values than the next one, and equal
// values are always in one bin.
//
// The first pass cuts at multiples of 1/8 below the largest value. Most rows spread over many of these bins: threads
// seldom add to the same bin, and few tokens are left in the right bin. If a row does not, as a row of one value, the
// search takes longer and has the same result. The other four passes take the 32 bits of a value byte by byte, so the
// last pass leaves one value per bin.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/draw/token_key.cuh"

namespace foretoken::kernels::cuda {

inline constexpr int kNumBins = 256;
inline constexpr int kNumSearchPasses = 5;

// The first pass's bin of a value that is at most `max`.
__device__ inline int FirstBinOf(float x, float max) {
  const float place = (max - x) * 8;
  return place < kNumBins - 1 ? static_cast<int>(place) : kNumBins - 1;
}

// The bins that a search has entered so far.
struct BinPath {
  int first_bin;
  uint32_t prefix;  // the first bytes of the keys inside
};

// True if a value is in the bin that pass `pass` divides.
__device__ inline bool IsInside(const BinPath& path, int pass, float x, float max) {
  if (pass == 0) return true;
  if (FirstBinOf(x, max) != path.first_bin) return false;
  return pass == 1 || ValueKey(x) >> (40 - 8 * pass) == path.prefix;
}

__device__ inline int BinOf(int pass, float x, float max) {
  return pass == 0 ? FirstBinOf(x, max) : static_cast<int>(ValueKey(x) >> (32 - 8 * pass) & 0xff);
}

__device__ inline BinPath Into(const BinPath& path, int pass, int bin) {
  if (pass == 0) return {.first_bin = bin, .prefix = 0};
  return {.first_bin = path.first_bin, .prefix = path.prefix << 8 | static_cast<uint32_t>(bin)};
}

}  // namespace foretoken::kernels::cuda
