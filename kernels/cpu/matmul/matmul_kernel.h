// SPDX-License-Identifier: Apache-2.0
// One kind of arithmetic for the matrix product. MatMul cuts the product into tiles and runs one of these on each.
//
// E1: a kernel makes every sum by one chain of additions over K, in an order that K alone fixes. Tiles only decide
// which sums are under way at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace foretoken::kernels::cpu {

// Rows of x for one tile, to be laid out as the kernel reads them.
struct PackArgs {
  const uint16_t* x = nullptr;  // [num_rows, num_inputs] bf16
  int64_t num_rows = 0;
  int64_t num_inputs = 0;         // K
  int64_t padded_num_inputs = 0;  // of the weight; inputs from K on become zero
  void* packed = nullptr;         // aligned to 64 bytes
};

// The layout of kernels that multiply bf16 itself: [groups of 16 rows][K / 32][rows of the group][32], 64-byte lines of
// x one below the other. A copy, and no two rows' lines compete for one set of the cache.
void PackBf16(const PackArgs& args);

// Rows x panels x a range of inputs. Sums of the range from 0 start at zero; those of a later range go on from what
// `sums` holds, so that a sum done in ranges is the same chain as one done at once.
struct MatMulTile {
  const void* x = nullptr;  // as packed
  int64_t num_rows = 0;
  const uint16_t* panels = nullptr;  // consecutive panels of a CpuWeight
  int64_t num_panels = 0;
  int64_t padded_num_inputs = 0;
  int64_t first_input = 0;  // [first_input, end_input): multiples of kInputsPadding
  int64_t end_input = 0;
  float* sums = nullptr;  // [num_rows, sums_stride], panels side by side, aligned to 64 bytes
  int64_t sums_stride = 0;
};

// Upper bounds of what a tile holds.
struct MatMulTileShape {
  int64_t num_rows = 0;
  int64_t num_panels = 0;
  int64_t num_cached_panels = 0;  // where the caches hold the weight
};

struct MatMulKernel {
  size_t packed_bytes_per_input = 0;
  // What is fastest for a product of so many rows.
  MatMulTileShape (*tile_shape)(int64_t num_rows) = nullptr;
  void (*pack)(const PackArgs& args) = nullptr;
  void (*multiply)(const MatMulTile& tile) = nullptr;
};

}  // namespace foretoken::kernels::cpu
