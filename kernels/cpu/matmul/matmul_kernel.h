// SPDX-License-Identifier: Apache-2.0
// One kind of arithmetic for the matrix product. MatMul cuts the product into tiles and runs one of these kernels on
// each.
//
// E1: a kernel computes every sum by one chain of additions over K, in an order that K alone fixes. Tiles only decide
// which sums are computed side by side.
#pragma once

#include <cstddef>
#include <cstdint>

namespace foretoken::kernels::cpu {

struct IntegerPanels;

// Rows of x for one tile, and the memory for them in the kernel's layout.
struct PackArgs {
  const uint16_t* x = nullptr;  // [num_rows, num_inputs] bf16
  int64_t num_rows = 0;
  int64_t num_inputs = 0;                 // K
  int64_t padded_num_inputs = 0;          // of the weight; inputs from K on become zero
  const IntegerPanels* panels = nullptr;  // of the weight; null: bf16
  void* packed = nullptr;                 // aligned to 64 bytes
};

// The layout for kernels that multiply bf16 directly: [groups of 16 rows][K / 32][rows of the group][32], so 64-byte
// lines of x lie one below the other. It is a copy, so that no two rows' lines compete for one set of the cache.
void PackBf16(const PackArgs& args);

// The product of some rows and some panels over a range of inputs. Sums of a range that begins at 0 start at zero. Sums
// of a later range continue from the values in `sums`, so a sum in ranges is the same chain as a sum at once.
struct MatMulTile {
  const void* x = nullptr;  // as packed
  int64_t num_rows = 0;
  const std::byte* panels = nullptr;  // consecutive panels of a CpuWeight
  int64_t num_panels = 0;
  size_t panel_bytes = 0;
  const IntegerPanels* integers = nullptr;  // what the panels hold; null: bf16
  int64_t padded_num_inputs = 0;
  int64_t first_input = 0;  // [first_input, end_input): multiples of kInputsPadding, and of integers' groups
  int64_t end_input = 0;
  float* sums = nullptr;  // [num_rows, sums_stride], panels side by side, aligned to 64 bytes
  int64_t sums_stride = 0;
};

// Upper bounds of a tile's rows and panels.
struct MatMulTileShape {
  int64_t num_rows = 0;
  int64_t num_panels = 0;
  int64_t num_cached_panels = 0;  // num_panels for a weight that the caches hold
};

struct MatMulKernel {
  size_t packed_bytes_per_input = 0;
  size_t packed_bytes_per_group = 0;  // of integers, besides
  // The fastest shape for a product of that many rows.
  MatMulTileShape (*tile_shape)(int64_t num_rows) = nullptr;
  void (*pack)(const PackArgs& args) = nullptr;
  void (*multiply)(const MatMulTile& tile) = nullptr;
};

}  // namespace foretoken::kernels::cpu
