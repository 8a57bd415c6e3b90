// SPDX-License-Identifier: Apache-2.0
// A tile keeps rows x panels accumulators of 16 outputs in registers. A step takes one pair of inputs: a 64-byte load
// of each panel, and for every row its pair, broadcast from x packed as [pairs][rows][2]. vdpbf16ps has a latency of
// about 6 cycles at one a cycle, so 8 and more accumulators keep it busy.
//
// Up to 5 rows leave it idle most of the time: memory is what counts, and one plain stream, which the processor's own
// prefetchers follow best, beats anything cleverer. From 6 rows on the reorder buffer fills with arithmetic before it
// reaches the next lines, so they are asked for by hand, some 40 ahead.
#include "kernels/cpu/matmul_avx512_bf16.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <array>
#include <cstring>
#include <utility>

#include "kernels/cpu/weight.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace foretoken::kernels::cpu {
namespace {

constexpr int kMaxRows = 16;
constexpr int kPairBytes = 2 * kPanelWidth * sizeof(uint16_t);  // of a panel: one cache line

constexpr int NumPanels(int64_t num_rows) { return num_rows >= 6 && num_rows <= 14 ? 2 : 1; }
constexpr int NumPrefetchPairs(int num_rows) { return num_rows >= 6 ? 40 : 0; }

template <int kRows, int kPanels>
void MultiplyPanels(const MatMulTile& tile, int64_t first_panel) {
  constexpr int64_t kAhead = NumPrefetchPairs(kRows);
  const auto* x = static_cast<const uint32_t*>(tile.x);
  const int64_t num_pairs = tile.padded_num_inputs / 2;
  const int64_t end = tile.end_input / 2;
  const int64_t panel_bytes = num_pairs * kPairBytes;
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
  for (int64_t k = tile.first_input / 2; k < end; ++k) {
    // The last steps look into the panel that will take this one's place.
    const int64_t ahead_bytes = kAhead * kPairBytes + (k < num_pairs - kAhead ? 0 : (kPanels - 1) * panel_bytes);
    __m512bh weights[kPanels];
#pragma GCC unroll 32
    for (int p = 0; p < kPanels; ++p) {
      const char* line = panels + p * panel_bytes + k * kPairBytes;
      if constexpr (kAhead != 0) _mm_prefetch(line + ahead_bytes, _MM_HINT_T0);
      weights[p] = (__m512bh)_mm512_load_si512(line);
    }
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
      const __m512bh pair = (__m512bh)_mm512_set1_epi32(static_cast<int>(x[k * kRows + r]));
#pragma GCC unroll 32
      for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_dpbf16_ps(acc[r][p], weights[p], pair);
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
  constexpr int kPanels = NumPanels(kRows);
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

void Pack(const PackArgs& args) {
  auto* packed = static_cast<uint32_t*>(args.packed);  // [pairs][rows]
  constexpr int kPairs = kInputsPadding / 2;
  for (int64_t begin = 0; begin < args.padded_num_inputs; begin += kInputsPadding) {
    const int64_t count = std::min<int64_t>(kInputsPadding, args.num_inputs - begin);
    for (int64_t r = 0; r < args.num_rows; ++r) {
      uint32_t pairs[kPairs] = {};
      std::memcpy(pairs, args.x + r * args.num_inputs + begin, count * sizeof(uint16_t));
      for (int i = 0; i < kPairs; ++i) packed[(begin / 2 + i) * args.num_rows + r] = pairs[i];
    }
  }
}

MatMulTileShape TileShape(int64_t num_rows) {
  if (num_rows <= kMaxRows) return {num_rows, NumPanels(num_rows)};
  constexpr int64_t kBlockRows = 12;
  const int64_t num_blocks = (num_rows + kBlockRows - 1) / kBlockRows;
  const int64_t block_rows = (num_rows + num_blocks - 1) / num_blocks;
  return {block_rows, NumPanels(block_rows)};
}

}  // namespace

const MatMulKernel& Avx512Bf16Kernel() {
  static constexpr MatMulKernel kKernel = {
      .packed_bytes_per_input = sizeof(uint16_t), .tile_shape = TileShape, .pack = Pack, .multiply = Multiply};
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
