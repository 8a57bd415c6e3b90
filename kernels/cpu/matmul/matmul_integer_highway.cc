// SPDX-License-Identifier: Apache-2.0
// As in the AVX-512 kernel a group has sums of its own, and scale times sum is added to the totals. A vector of 32-bit
// lanes holds a quad of codes of each output; shifts and a mask take them out one input at a time.
#include "kernels/cpu/matmul/matmul_integer_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/matmul_integer_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/check.h"
#include "kernels/cpu/matmul/integer_panels.h"
#include "kernels/cpu/matmul/integer_rows.h"
#include "kernels/cpu/matmul/weight.h"
#include "kernels/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {  // other files have functions of these names

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, kPanelWidth>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using IntTag = hn::RebindToSigned<FloatTag>;
using HalfTag = hn::Rebind<uint16_t, FloatTag>;
using Vector = hn::Vec<FloatTag>;
inline constexpr int kLanes = HWY_MIN(HWY_LANES(float), kPanelWidth);
inline constexpr int kVectors = kPanelWidth / kLanes;  // of a panel
// A row has sums and totals in registers.
inline constexpr int kMaxRows = HWY_TARGET <= HWY_AVX3 ? 8 : HWY_MAX(4 / kVectors, 1);

HWY_INLINE Vector LoadScales(const std::byte* scales, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return hn::Load(FloatTag(), reinterpret_cast<const float*>(scales) + i);
  const auto halves = hn::Load(HalfTag(), reinterpret_cast<const uint16_t*>(scales) + i);
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(BitsTag(), halves)));
}

// A panel's output lanes [kLanes * vector, ...), for all rows.
template <int kBits, int kRows>
HWY_INLINE void MultiplyVector(const MatMulTile& tile, const std::byte* panel, int vector, float* sums) {
  constexpr int kLineInputs = kBits == 8 ? 4 : 8;
  const IntegerPanels& layout = *tile.integers;
  const FloatTag float_tag;
  const BitsTag bits_tag;
  const IntTag int_tag;
  const auto mask = hn::Set(bits_tag, (1u << kBits) - 1);
  const auto center = hn::Set(int_tag, 1 << (kBits - 1));
  const int64_t row_floats = layout.group_size + static_cast<int64_t>(sizeof(RowGroup) / sizeof(float));
  Vector totals[kRows];
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
    totals[r] = tile.first_input != 0 ? hn::Load(float_tag, sums + r * tile.sums_stride) : hn::Zero(float_tag);
  }
  for (int64_t group = tile.first_input / layout.group_size; group < tile.end_input / layout.group_size; ++group) {
    const float* HWY_RESTRICT x = static_cast<const float*>(tile.x) + group * kRows * row_floats;
    const auto* lines = reinterpret_cast<const uint32_t*>(panel + layout.codes_at(group));
    Vector group_sums[kRows];
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) group_sums[r] = hn::Zero(float_tag);
    for (int64_t input = 0; input < layout.group_size; input += kLineInputs) {
      auto codes = hn::Load(bits_tag, lines + input / kLineInputs * kPanelWidth + vector * kLanes);
#pragma GCC unroll 32
      for (int i = 0; i < kLineInputs; ++i) {
        // Of 4 bits, the low halves of the four bytes come first.
        const int shift = kBits == 8 ? 8 * i : 8 * (i % 4) + 4 * (i / 4);
        const auto code = hn::And(hn::ShiftRightSame(codes, shift), mask);
        const Vector weight = hn::ConvertTo(float_tag, hn::Sub(hn::BitCast(int_tag, code), center));
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
          group_sums[r] = hn::MulAdd(weight, hn::Set(float_tag, x[r * row_floats + input + i]), group_sums[r]);
        }
      }
    }
    const Vector scales = LoadScales(panel + layout.scales_at(group), layout.scale_dtype, vector * kLanes);
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
      const auto* row = reinterpret_cast<const RowGroup*>(x + r * row_floats + layout.group_size);
      totals[r] = hn::MulAdd(group_sums[r], hn::Mul(scales, hn::Set(float_tag, row->scale)), totals[r]);
      if (layout.has_offsets) {
        const Vector offsets = LoadScales(panel + layout.offsets_at(group), DType::kF32, vector * kLanes);
        totals[r] = hn::MulAdd(offsets, hn::Set(float_tag, row->sum), totals[r]);
      }
    }
  }
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) hn::Store(totals[r], float_tag, sums + r * tile.sums_stride);
}

template <int kBits, int kRows = kMaxRows>
void Multiply(const MatMulTile& tile) {
  if constexpr (kRows > 1) {
    if (tile.num_rows < kRows) return Multiply<kBits, kRows - 1>(tile);
  }
  for (int64_t p = 0; p < tile.num_panels; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      MultiplyVector<kBits, kRows>(tile, tile.panels + p * tile.panel_bytes, v,
                                   tile.sums + p * kPanelWidth + v * kLanes);
    }
  }
}

MatMulTileShape TileShape(int64_t num_rows) {
  const int64_t num_blocks = (num_rows + kMaxRows - 1) / kMaxRows;
  return {(num_rows + num_blocks - 1) / num_blocks, 1, 1};
}

template <int kBits>
const MatMulKernel* Kernel() {
  static constexpr MatMulKernel kKernel = {.packed_bytes_per_input = sizeof(float),
                                           .packed_bytes_per_group = sizeof(RowGroup),
                                           .tile_shape = TileShape,
                                           .pack = PackWideRowGroups,
                                           .multiply = Multiply<kBits>};
  return &kKernel;
}

const MatMulKernel* KernelOfBits(int bits) { return bits == 8 ? Kernel<8>() : Kernel<4>(); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(KernelOfBits);

const MatMulKernel& HighwayIntegerKernel(const IntegerPanels& panels) {
  FT_CHECK(panels.order == IntegerOrder::kQuads);
  return *HWY_DYNAMIC_DISPATCH(KernelOfBits)(panels.bits);
}

}  // namespace foretoken::kernels::cpu
#endif
