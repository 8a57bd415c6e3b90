// SPDX-License-Identifier: Apache-2.0
// A tile keeps rows x panels x (16 / lanes) accumulators in registers. A line of a panel holds 16 pairs. In each vector
// of pairs the first inputs are the low halves and the second inputs the high halves of 32-bit lanes; a shift and a
// mask widen them to f32. x is packed widened, as [K / 32][rows][32]. As in the AVX-512-BF16 kernel, from a few rows on
// the code prefetches the next lines of the weight itself.
#include "kernels/cpu/matmul/matmul_highway.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/matmul_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/matmul/weight.h"
#include "kernels/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, kPanelWidth>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
inline constexpr int kLanes = HWY_MIN(HWY_LANES(float), kPanelWidth);
inline constexpr int kVectors = kPanelWidth / kLanes;  // of a panel
// This many accumulators leave registers for two vectors of weights, widened twice, and one of x.
inline constexpr int kMaxAccumulators = HWY_TARGET <= HWY_AVX3 ? 24 : 10;
inline constexpr int kMaxRows = HWY_MAX(kMaxAccumulators / HWY_MAX(kVectors, 2), 1);

// With 16 registers only a single row leaves room for a second panel.
constexpr int NumPanels(int64_t num_rows) { return HWY_TARGET <= HWY_AVX3 || num_rows == 1 ? 2 : 1; }

constexpr int NumInputsAhead(int num_rows) { return num_rows >= 3 ? 96 : 0; }

// Prefetches one line of each panel.
template <int kPanels>
HWY_INLINE void PrefetchLines(const uint16_t* line, int64_t panel_elements) {
#pragma GCC unroll 32
  for (int p = 0; p < kPanels; ++p) __builtin_prefetch(line + p * panel_elements);
}

template <int kRows, int kPanels>
void MultiplyPanels(const MatMulTile& tile, int64_t first_panel) {
  constexpr int kAllVectors = kPanels * kVectors;
  constexpr int kGroup = HWY_MIN(kAllVectors, 2);  // vectors that share a broadcast of x
  constexpr int64_t kInputsAhead = NumInputsAhead(kRows);
  const FloatTag float_tag;
  const BitsTag bits_tag;
  using Vector = hn::Vec<FloatTag>;
  const int64_t panel_elements = tile.padded_num_inputs * kPanelWidth;
  const uint16_t* HWY_RESTRICT panels = reinterpret_cast<const uint16_t*>(tile.panels) + first_panel * panel_elements;
  float* sums = tile.sums + first_panel * kPanelWidth;
  const bool resumes = tile.first_input != 0;
  const auto high_half = hn::Set(bits_tag, 0xffff0000u);
  Vector acc[kRows][kAllVectors];
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
    for (int v = 0; v < kAllVectors; ++v) {
      acc[r][v] = resumes ? hn::Load(float_tag, sums + r * tile.sums_stride + v * kLanes) : hn::Zero(float_tag);
    }
  }
  for (int64_t input = tile.first_input; input < tile.end_input; input += kInputsPadding) {
    const float* HWY_RESTRICT x = static_cast<const float*>(tile.x) + input * kRows;
    const uint16_t* HWY_RESTRICT lines = panels + input * kPanelWidth;
    // The last steps prefetch from the panel that comes next.
    const bool near_end = input + kInputsAhead >= tile.padded_num_inputs;
    const uint16_t* ahead = lines + kInputsAhead * kPanelWidth + (near_end ? (kPanels - 1) * panel_elements : 0);
    for (int k = 0; k < kInputsPadding / 2; ++k) {
      if constexpr (kInputsAhead != 0) PrefetchLines<kPanels>(ahead + k * 2 * kPanelWidth, panel_elements);
#pragma GCC unroll 32
      for (int g = 0; g < kAllVectors; g += kGroup) {
        Vector first[kGroup], second[kGroup];
#pragma GCC unroll 32
        for (int i = 0; i < kGroup; ++i) {
          const int v = g + i;
          const uint16_t* line = lines + v / kVectors * panel_elements + k * 2 * kPanelWidth;
          const auto pairs = hn::Load(bits_tag, reinterpret_cast<const uint32_t*>(line) + v % kVectors * kLanes);
          first[i] = hn::BitCast(float_tag, hn::ShiftLeft<16>(pairs));
          second[i] = hn::BitCast(float_tag, hn::And(pairs, high_half));
        }
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
          const Vector x_first = hn::Set(float_tag, x[r * kInputsPadding + 2 * k]);
#pragma GCC unroll 32
          for (int i = 0; i < kGroup; ++i) acc[r][g + i] = hn::MulAdd(first[i], x_first, acc[r][g + i]);
          const Vector x_second = hn::Set(float_tag, x[r * kInputsPadding + 2 * k + 1]);
#pragma GCC unroll 32
          for (int i = 0; i < kGroup; ++i) acc[r][g + i] = hn::MulAdd(second[i], x_second, acc[r][g + i]);
        }
      }
    }
  }
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
    for (int v = 0; v < kAllVectors; ++v) {
      hn::Store(acc[r][v], float_tag, sums + r * tile.sums_stride + v * kLanes);
    }
  }
}

template <int kRows>
void MultiplyRows(const MatMulTile& tile) {
  constexpr int kPanels = NumPanels(kRows);
  int64_t p = 0;
  for (; p + kPanels <= tile.num_panels; p += kPanels) MultiplyPanels<kRows, kPanels>(tile, p);
  for (; p < tile.num_panels; ++p) MultiplyPanels<kRows, 1>(tile, p);
}

template <int kRows = kMaxRows>
void MultiplyUpTo(const MatMulTile& tile) {
  if constexpr (kRows > 1) {
    if (tile.num_rows < kRows) return MultiplyUpTo<kRows - 1>(tile);
  }
  MultiplyRows<kRows>(tile);
}

void Pack(const PackArgs& args) {
  auto* packed = static_cast<float*>(args.packed);
  for (int64_t begin = 0; begin < args.padded_num_inputs; begin += kInputsPadding) {
    const int64_t count = HWY_MIN(kInputsPadding, args.num_inputs - begin);
    for (int64_t r = 0; r < args.num_rows; ++r, packed += kInputsPadding) {
      const uint16_t* x = args.x + r * args.num_inputs + begin;
      for (int64_t i = 0; i < count; ++i) packed[i] = FloatFromBf16(x[i]);
      for (int64_t i = count; i < kInputsPadding; ++i) packed[i] = 0;
    }
  }
}

MatMulTileShape TileShape(int64_t num_rows) {
  const int64_t num_blocks = (num_rows + kMaxRows - 1) / kMaxRows;
  const int64_t block_rows = (num_rows + num_blocks - 1) / num_blocks;
  return {block_rows, NumPanels(block_rows), NumPanels(block_rows)};
}

const MatMulKernel* Kernel() {
  static constexpr MatMulKernel kKernel = {
      .packed_bytes_per_input = sizeof(float), .tile_shape = TileShape, .pack = Pack, .multiply = MultiplyUpTo<>};
  return &kKernel;
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(Kernel);

const MatMulKernel& HighwayKernel() { return *HWY_DYNAMIC_DISPATCH(Kernel)(); }

}  // namespace foretoken::kernels::cpu
#endif
