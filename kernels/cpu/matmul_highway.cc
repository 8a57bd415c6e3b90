// SPDX-License-Identifier: Apache-2.0
// A tile keeps rows x panels x (16 / lanes) accumulators in registers. A line of a panel holds 16 pairs; in each vector
// of pairs the first inputs are the low halves and the second the high halves of 32-bit lanes, which a shift and a mask
// widen to f32. x is packed widened, as [K][rows].
#include "kernels/cpu/matmul_highway.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_highway.cc"
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)  // vectors of unknown size
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/weight.h"
#include "kernels/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, kPanelWidth>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
inline constexpr int kLanes = HWY_MIN(HWY_LANES(float), kPanelWidth);
inline constexpr int kVectors = kPanelWidth / kLanes;  // of a panel
// Accumulators that leave room for a vector of weights, widened twice, and one of x.
inline constexpr int kMaxAccumulators = HWY_TARGET <= HWY_AVX3 ? 24 : 12;
inline constexpr int kMaxPanels = 4;
inline constexpr int kMaxRows = HWY_MAX(kMaxAccumulators / 2 / kVectors, 1);

constexpr int NumPanels(int64_t num_rows) {
  return static_cast<int>(HWY_MAX(HWY_MIN(kMaxAccumulators / (kVectors * num_rows), kMaxPanels), 1));
}

template <int kRows, int kPanels>
void MultiplyPanels(const MatMulTile& tile, int64_t first_panel) {
  const FloatTag float_tag;
  const BitsTag bits_tag;
  using Vector = hn::Vec<FloatTag>;
  const auto* HWY_RESTRICT x = static_cast<const float*>(tile.x);
  const int64_t num_pairs = tile.padded_num_inputs / 2;
  const int64_t end = tile.end_input / 2;
  const uint16_t* HWY_RESTRICT panels = tile.panels + first_panel * tile.padded_num_inputs * kPanelWidth;
  float* sums = tile.sums + first_panel * kPanelWidth;
  const bool resumes = tile.first_input != 0;
  const auto high_half = hn::Set(bits_tag, 0xffff0000u);
  Vector acc[kRows][kPanels * kVectors];
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
    for (int v = 0; v < kPanels * kVectors; ++v) {
      acc[r][v] = resumes ? hn::Load(float_tag, sums + r * tile.sums_stride + v * kLanes) : hn::Zero(float_tag);
    }
  }
  for (int64_t k = tile.first_input / 2; k < end; ++k) {
#pragma GCC unroll 32
    for (int v = 0; v < kPanels * kVectors; ++v) {
      const uint16_t* line = panels + (v / kVectors * num_pairs + k) * 2 * kPanelWidth + v % kVectors * 2 * kLanes;
      const auto pairs = hn::Load(bits_tag, reinterpret_cast<const uint32_t*>(line));
      const Vector first = hn::BitCast(float_tag, hn::ShiftLeft<16>(pairs));
      const Vector second = hn::BitCast(float_tag, hn::And(pairs, high_half));
#pragma GCC unroll 32
      for (int r = 0; r < kRows; ++r) {
        acc[r][v] = hn::MulAdd(first, hn::Set(float_tag, x[2 * k * kRows + r]), acc[r][v]);
        acc[r][v] = hn::MulAdd(second, hn::Set(float_tag, x[(2 * k + 1) * kRows + r]), acc[r][v]);
      }
    }
  }
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
    for (int v = 0; v < kPanels * kVectors; ++v)
      hn::Store(acc[r][v], float_tag, sums + r * tile.sums_stride + v * kLanes);
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
  auto* packed = static_cast<float*>(args.packed);  // [K][rows]
  constexpr int64_t kInputs = kInputsPadding;
  for (int64_t begin = 0; begin < args.padded_num_inputs; begin += kInputs) {
    const int64_t count = HWY_MIN(kInputs, args.num_inputs - begin);
    for (int64_t r = 0; r < args.num_rows; ++r) {
      const uint16_t* x = args.x + r * args.num_inputs + begin;
      float* out = packed + begin * args.num_rows + r;
      for (int64_t i = 0; i < count; ++i) out[i * args.num_rows] = FloatFromBf16(x[i]);
      for (int64_t i = count; i < kInputs; ++i) out[i * args.num_rows] = 0;
    }
  }
}

MatMulTileShape TileShape(int64_t num_rows) {
  const int64_t num_blocks = (num_rows + kMaxRows - 1) / kMaxRows;
  const int64_t block_rows = (num_rows + num_blocks - 1) / num_blocks;
  return {block_rows, NumPanels(block_rows)};
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
