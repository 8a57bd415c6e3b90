// SPDX-License-Identifier: Apache-2.0
// A tile keeps rows x panels accumulators of 16 outputs in registers. A step takes one pair of inputs: a 64-byte load
// of each panel and, for every row, its pair broadcast from x (PackBf16). vdpbf16ps has a latency of about 6 cycles at
// one per cycle, so 8 and more accumulators keep it busy.
//
// With up to 5 rows the unit is idle most of the time, and memory sets the speed. One plain stream is then fastest,
// because the processor's prefetchers follow it best. From 6 rows on, arithmetic fills the reorder buffer before it
// reaches the next lines. So the code prefetches them itself, some 50 lines ahead.
//
// A weight in the caches arrives faster than one or two accumulators can take it, so few rows take several panels at a
// time.
#include "kernels/cpu/matmul/matmul_avx512_bf16.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <array>
#include <utility>

#include "kernels/cpu/matmul/weight.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace foretoken::kernels::cpu {
namespace {

constexpr int kMaxRows = 16;
constexpr int kPairBytes = 2 * kPanelWidth * sizeof(uint16_t);  // of a panel: one cache line

constexpr int NumPanels(int64_t num_rows) { return num_rows >= 6 && num_rows <= 14 ? 2 : 1; }
constexpr int NumCachedPanels(int64_t num_rows) { return num_rows <= 2 ? 4 : num_rows <= 14 ? 2 : 1; }
constexpr int NumInputsAhead(int num_rows) { return num_rows >= 6 ? 96 : 0; }

template <int kRows, int kPanels>
void MultiplyPanels(const MatMulTile& tile, int64_t first_panel) {
  constexpr int64_t kInputsAhead = NumInputsAhead(kRows);
  const int64_t panel_bytes = tile.padded_num_inputs / 2 * kPairBytes;
  const char* panels = reinterpret_cast<const char*>(tile.panels) + first_panel * panel_bytes;
  float* sums = tile.sums + first_panel * kPanelWidth;
  const bool resumes = tile.first_input != 0;
  __m512 acc[kRows][kPanels];
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
    for (int p = 0; p < kPanels; ++p) {
      acc[r][p] = resumes ? _mm512_load_ps(sums + r * tile.sums_stride + p * kPanelWidth) : _mm512_setzero_ps();
    }
  }
  for (int64_t input = tile.first_input; input < tile.end_input; input += kInputsPadding) {
    const uint32_t* x = static_cast<const uint32_t*>(tile.x) + input / 2 * kRows;  // [rows][16 pairs]
    const char* lines = panels + input / 2 * kPairBytes;
    // The last steps prefetch from the panel that comes next.
    const bool near_end = input + kInputsAhead >= tile.padded_num_inputs;
    const char* ahead = lines + kInputsAhead / 2 * kPairBytes + (near_end ? (kPanels - 1) * panel_bytes : 0);
    for (int k = 0; k < kInputsPadding / 2; ++k) {
      __m512bh weights[kPanels];
#pragma GCC unroll 32
      for (int p = 0; p < kPanels; ++p) {
        if constexpr (kInputsAhead != 0) _mm_prefetch(ahead + p * panel_bytes + k * kPairBytes, _MM_HINT_T0);
        weights[p] = (__m512bh)_mm512_load_si512(lines + p * panel_bytes + k * kPairBytes);
      }
#pragma GCC unroll 32
      for (int r = 0; r < kRows; ++r) {
        const __m512bh pair = (__m512bh)_mm512_set1_epi32(static_cast<int>(x[r * kInputsPadding / 2 + k]));
#pragma GCC unroll 32
        for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_dpbf16_ps(acc[r][p], weights[p], pair);
      }
    }
  }
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
    for (int p = 0; p < kPanels; ++p) _mm512_store_ps(sums + r * tile.sums_stride + p * kPanelWidth, acc[r][p]);
  }
}

template <int kRows>
void MultiplyRows(const MatMulTile& tile) {
  constexpr int kPanels = NumCachedPanels(kRows);
  static_assert(NumPanels(kRows) == 1 || NumPanels(kRows) == kPanels);
  int64_t p = 0;
  for (; p + kPanels <= tile.num_panels; p += kPanels) MultiplyPanels<kRows, kPanels>(tile, p);
  for (; p < tile.num_panels; ++p) MultiplyPanels<kRows, 1>(tile, p);
}

template <int... kRowsLessOne>
constexpr auto MakeTable(std::integer_sequence<int, kRowsLessOne...>) {
  return std::array{&MultiplyRows<kRowsLessOne + 1>...};
}

void Multiply(const MatMulTile& tile) {
  static constexpr auto kTable = MakeTable(std::make_integer_sequence<int, kMaxRows>());
  kTable[tile.num_rows - 1](tile);
}

MatMulTileShape TileShape(int64_t num_rows) {
  if (num_rows <= kMaxRows) return {num_rows, NumPanels(num_rows), NumCachedPanels(num_rows)};
  constexpr int64_t kBlockRows = 12;
  const int64_t num_blocks = (num_rows + kBlockRows - 1) / kBlockRows;
  const int64_t block_rows = (num_rows + num_blocks - 1) / num_blocks;
  return {block_rows, NumPanels(block_rows), NumCachedPanels(block_rows)};
}

}  // namespace

const MatMulKernel& Avx512Bf16Kernel() {
  static constexpr MatMulKernel kKernel = {
      .packed_bytes_per_input = sizeof(uint16_t), .tile_shape = TileShape, .pack = PackBf16, .multiply = Multiply};
  return kKernel;
}

}  // namespace foretoken::kernels::cpu

HWY_POP_ATTRIBUTES

#else

#include "kernels/check.h"

namespace foretoken::kernels::cpu {

const MatMulKernel& Avx512Bf16Kernel() { FT_CHECK(false); }

}  // namespace foretoken::kernels::cpu

#endif
