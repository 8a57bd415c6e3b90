// SPDX-License-Identifier: Apache-2.0
// As in the AVX-512 kernel a group has sums of its own, and scale times sum is added to the totals. A vector of 32-bit
// lanes holds a quad of codes of each output; shifts and a mask take them out one input at a time.
#include "kernels/cpu/matmul/matmul_integer_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/matmul_integer_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/check.h"
#include "kernels/cpu/base/simd-inl.h"
#include "kernels/cpu/matmul/integer_panels-inl.h"
#include "kernels/cpu/matmul/integer_panels.h"
#include "kernels/cpu/matmul/integer_rows.h"
#include "kernels/cpu/matmul/weight.h"
#include "kernels/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {  // other files have functions of these names

using BitsTag = hn::RebindToUnsigned<FloatTag>;
using IntTag = hn::RebindToSigned<FloatTag>;
inline constexpr int kLanes = HWY_MIN(HWY_LANES(float), kPanelWidth);
inline constexpr int kVectors = kPanelWidth / kLanes;  // of a panel
// A row has sums and totals in registers.
inline constexpr int kMaxRows = HWY_TARGET <= HWY_AVX3 ? 8 : HWY_MAX(4 / kVectors, 1);

// Where code i of a unit of lines lies: a line, and the lowest bit in its lanes. The lower halves of four bytes come
// before the higher ones.
template <int kBits>
constexpr int LineOf(int i) {
  return kBits == 8 ? 0 : i / 8;
}
template <int kBits>
constexpr int ShiftOf(int i) {
  return kBits == 8 ? 8 * i : 8 * (i % 4) + 4 * (i % 8 / 4);
}

// The levels of codes of E2M1. The three upper bytes of a lane look up the first level, and are cleared.
HWY_INLINE hn::Vec<BitsTag> LevelsOf(hn::Vec<BitsTag> codes) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(BitsTag(), kE2m1Levels[hn::GetLane(codes)]);
#else
  const hn::Repartition<uint8_t, BitsTag> byte_tag;
  const auto levels = hn::TableLookupBytes(hn::LoadDup128(byte_tag, kE2m1Levels.data()), hn::BitCast(byte_tag, codes));
  return hn::And(hn::BitCast(BitsTag(), levels), hn::Set(BitsTag(), 0xffu));
#endif
}

// A panel's output lanes [kLanes * vector, ...), for all rows.
template <int kBits, bool kIsE2m1, int kRows>
HWY_INLINE void MultiplyVector(const MatMulTile& tile, const std::byte* panel, int vector, float* sums) {
  constexpr int kUnitLines = kBits == 6 ? 3 : 1, kUnitInputs = kUnitLines * 32 / kBits;
  const IntegerPanels& layout = *tile.integers;
  const BitsTag bits_tag;
  const IntTag int_tag;
  const auto mask = hn::Set(bits_tag, kBits == 8 ? 0xffu : 15u), upper_mask = hn::Set(bits_tag, 3u);
  const auto center = hn::Set(int_tag, layout.center());
  const int64_t row_floats = layout.group_size + static_cast<int64_t>(sizeof(RowGroup) / sizeof(float));
  FloatVec totals[kRows];
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
    totals[r] = tile.first_input != 0 ? hn::Load(kFloat, sums + r * tile.sums_stride) : hn::Zero(kFloat);
  }
  const int64_t first_group = tile.first_input / layout.group_size;
  GroupCursor<const std::byte> at(layout, panel, first_group);
  for (int64_t group = first_group; group < tile.end_input / layout.group_size; ++group, at.Next()) {
    const float* HWY_RESTRICT x = static_cast<const float*>(tile.x) + group * kRows * row_floats;
    const auto* lines = reinterpret_cast<const uint32_t*>(at.codes());
    FloatVec group_sums[kRows];
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) group_sums[r] = hn::Zero(kFloat);
    for (int64_t input = 0; input < layout.group_size; input += kUnitInputs, lines += kUnitLines * kPanelWidth) {
      const auto load = [&](int line) { return hn::Load(bits_tag, lines + line * kPanelWidth + vector * kLanes); };
      const auto upper = load(kUnitLines - 1);
#pragma GCC unroll 32
      for (int i = 0; i < kUnitInputs; ++i) {
        auto code = hn::And(hn::ShiftRightSame(load(LineOf<kBits>(i)), ShiftOf<kBits>(i)), mask);
        if constexpr (kIsE2m1) code = LevelsOf(code);
        if constexpr (kBits == 6) {
          const auto two = hn::And(hn::ShiftRightSame(upper, 8 * (i % 4) + 2 * (i / 4)), upper_mask);
          code = hn::Or(code, hn::ShiftLeft<4>(two));
        }
        const FloatVec weight = hn::ConvertTo(kFloat, hn::Sub(hn::BitCast(int_tag, code), center));
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
          group_sums[r] = hn::MulAdd(weight, hn::Set(kFloat, x[r * row_floats + input + i]), group_sums[r]);
        }
      }
    }
    const FloatVec scales = LoadScales(layout, at, vector * kLanes);
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
      const auto* row = reinterpret_cast<const RowGroup*>(x + r * row_floats + layout.group_size);
      totals[r] = hn::MulAdd(group_sums[r], hn::Mul(scales, hn::Set(kFloat, row->scale)), totals[r]);
      if (layout.has_offsets) {
        const FloatVec offsets = LoadOffsets(layout, at, vector * kLanes, scales);
        totals[r] = hn::MulAdd(offsets, hn::Set(kFloat, row->sum), totals[r]);
      }
    }
  }
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) hn::Store(totals[r], kFloat, sums + r * tile.sums_stride);
}

template <int kBits, bool kIsE2m1, int kRows = kMaxRows>
void Multiply(const MatMulTile& tile) {
  if constexpr (kRows > 1) {
    if (tile.num_rows < kRows) return Multiply<kBits, kIsE2m1, kRows - 1>(tile);
  }
  for (int64_t p = 0; p < tile.num_panels; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      MultiplyVector<kBits, kIsE2m1, kRows>(tile, tile.panels + p * tile.panel_bytes, v,
                                            tile.sums + p * kPanelWidth + v * kLanes);
    }
  }
}

MatMulTileShape TileShape(int64_t num_rows) {
  const int64_t num_blocks = (num_rows + kMaxRows - 1) / kMaxRows;
  return {(num_rows + num_blocks - 1) / num_blocks, 1, 1};
}

template <int kBits, bool kIsE2m1 = false>
const MatMulKernel* Kernel() {
  static constexpr MatMulKernel kKernel = {.packed_bytes_per_input = sizeof(float),
                                           .packed_bytes_per_group = sizeof(RowGroup),
                                           .tile_shape = TileShape,
                                           .pack = PackWideRowGroups,
                                           .multiply = Multiply<kBits, kIsE2m1>};
  return &kKernel;
}

const MatMulKernel* KernelOfBits(int bits, bool is_e2m1) {
  if (is_e2m1) return Kernel<4, true>();
  if (bits == 6) return Kernel<6>();
  return bits == 8 ? Kernel<8>() : Kernel<4>();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(KernelOfBits);

const MatMulKernel& HighwayIntegerKernel(const IntegerPanels& panels) {
  FT_CHECK(panels.order == IntegerOrder::kQuads);
  return *HWY_DYNAMIC_DISPATCH(KernelOfBits)(panels.bits, panels.is_e2m1);
}

}  // namespace foretoken::kernels::cpu
#endif
