// SPDX-License-Identifier: Apache-2.0
// As in the AVX-512 kernel a group has sums of its own, and scale times sum is added to the totals. A vector of 32-bit
// lanes holds a quad of codes of each output. Shifts take them out one input at a time, for as many rows as registers
// hold sums of: to widen a weight again for other rows takes no longer than to keep it in memory.
#include "kernels/cpu/matmul/matmul_integer_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/matmul_integer_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>

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

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;
inline constexpr int kLanes = HWY_MIN(HWY_LANES(float), kPanelWidth);
inline constexpr int kVectors = HWY_MIN(kPanelWidth / kLanes, 2);  // side by side
inline constexpr int kPartWidth = kVectors * kLanes;               // of a panel's outputs
inline constexpr int64_t kLineBytes = 64, kBytesAhead = 3072;      // as in the kernels of AVX2 and AVX-512
inline constexpr int kMaxRows = 24;  // of a tile, all multiplied with a group before the next
inline constexpr int kRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM ? 32 : 16;
// Rows whose sums fill half of the registers. Weights and values need others.
inline constexpr int kBlockRows = HWY_MIN(HWY_MAX(kRegisters / 2 / kVectors, 1), 8);
// A sum waits for its last addition, so about so many are added up side by side: of outputs, rows and groups.
inline constexpr int kChains = 4;

// Lines that are taken apart together, of a vector's outputs. A code becomes a signed integer when its highest bit is
// flipped. A code of E2M1 is an index of kE2m1Levels, and no bit is flipped.
template <int kBits, bool kIsE2m1>
struct Unit {
  static constexpr int kLines = kBits == 6 ? 3 : 1;
  static constexpr int kInputs = kLines * 32 / kBits;
  static constexpr uint32_t kHighestBits = kBits == 8 ? 0x80808080 : kBits == 6 ? 0xaaaaaaaa : 0x88888888;
  IntVec lines[kLines];

  // From the vector's part of the first line on.
  HWY_INLINE void Load(const std::byte* at) {
    for (int line = 0; line < kLines; ++line) {
      lines[line] = hn::Load(IntTag(), reinterpret_cast<const int32_t*>(at + line * kLineBytes));
    }
    if constexpr (kIsE2m1) return;
    lines[kLines - 1] = hn::Xor(lines[kLines - 1], hn::Set(IntTag(), static_cast<int32_t>(kHighestBits)));
  }

  // What code i stands for. The lower halves of four bytes come before the higher ones. A caller's loop over i is
  // unrolled, so that shifts are constants.
  HWY_INLINE FloatVec Value(int i) const {
    const int shift = kBits == 8 ? 8 * i : 8 * (i % 4) + 4 * (i % 8 / 4);
    if constexpr (kIsE2m1) return hn::ConvertTo(kFloat, LevelOf(Moved(lines[0], shift, 24)));
    if constexpr (kBits == 6) {
      const IntVec lower = hn::And(Moved(lines[i / 8], shift, 26), hn::Set(IntTag(), 0x3c000000));
      const IntVec upper = hn::And(Moved(lines[2], 8 * (i % 4) + 2 * (i / 4), 30), hn::Set(IntTag(), -1 << 30));
      return hn::ConvertTo(kFloat, hn::ShiftRight<26>(hn::Or(lower, upper)));
    }
    return hn::ConvertTo(kFloat, hn::ShiftRight<32 - kBits>(Moved(lines[0], shift, 32 - kBits)));
  }

  // Bit `from` becomes bit `to`.
  static HWY_INLINE IntVec Moved(IntVec bits, int from, int to) {
    return from <= to ? hn::ShiftLeftSame(bits, to - from) : hn::ShiftRightSame(bits, from - to);
  }

  // The level of the code in each lane's highest byte. The other bytes' levels are shifted out.
  static HWY_INLINE IntVec LevelOf(IntVec codes) {
    static constexpr std::array<int8_t, 16> kSignedLevels = [] {
      std::array<int8_t, 16> levels = {};
      for (int code = 0; code < 16; ++code) levels[code] = static_cast<int8_t>(kE2m1Levels[code] - kE2m1Zero);
      return levels;
    }();
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(IntTag(), kSignedLevels[hn::GetLane(codes) >> 24 & 15]);
#else
    const hn::Repartition<int8_t, IntTag> byte_tag;
    const auto indices = hn::BitCast(byte_tag, hn::And(codes, hn::Set(IntTag(), 0x0f000000)));
    const auto levels = hn::TableLookupBytes(hn::LoadDup128(byte_tag, kSignedLevels.data()), indices);
    return hn::ShiftRight<24>(hn::BitCast(IntTag(), levels));
#endif
  }
};

// Outputs [first, first + kPartWidth) of a panel, and the rows that are multiplied with them.
struct Part {
  const IntegerPanels& layout;
  int first;
  int64_t num_rows;
  float* totals;  // [num_rows, stride]
  int64_t stride;

  int64_t row_floats() const { return layout.group_size + static_cast<int64_t>(sizeof(RowGroup) / sizeof(float)); }
};

// Adds a group's sums to the totals.
template <int kRows>
HWY_INLINE void AddScaled(const Part& part, const GroupCursor<const std::byte>& at, const float* x,
                          const FloatVec (&sums)[kRows][kVectors]) {
  const IntegerPanels& layout = part.layout;
  const int64_t row_floats = part.row_floats(), stride = part.stride;
  const bool has_offsets = layout.has_offsets;
  const float* with = x + layout.group_size;
  const auto row = [=](int r) { return reinterpret_cast<const RowGroup*>(with + r * row_floats); };
#pragma GCC unroll 32
  for (int v = 0; v < kVectors; ++v) {
    const FloatVec scales = LoadScales(layout, at, part.first + v * kLanes);
    float* totals = part.totals + v * kLanes;
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
      const FloatVec total = hn::Load(kFloat, totals + r * stride);
      hn::Store(hn::MulAdd(sums[r][v], hn::Mul(scales, hn::Set(kFloat, row(r)->scale)), total), kFloat,
                totals + r * stride);
    }
    if (!has_offsets) continue;
    const FloatVec offsets = LoadOffsets(layout, at, part.first + v * kLanes, scales);
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
      const FloatVec total = hn::Load(kFloat, totals + r * stride);
      hn::Store(hn::MulAdd(offsets, hn::Set(kFloat, row(r)->sum), total), kFloat, totals + r * stride);
    }
  }
}

// Multiplies the next groups. `x` has the rows of the first one.
template <int kBits, bool kIsE2m1, int kRows, int kGroups>
HWY_INLINE void MultiplyGroups(const Part& part, GroupCursor<const std::byte>& at, const float* x) {
  using CodeUnit = Unit<kBits, kIsE2m1>;
  const int64_t group_size = part.layout.group_size, row_floats = part.row_floats();
  FloatVec sums[kGroups][kRows][kVectors];
  const std::byte* lines[kGroups];
  GroupCursor<const std::byte> codes_at = at;
#pragma GCC unroll 32
  for (int g = 0; g < kGroups; ++g, codes_at.Next()) {
    lines[g] = codes_at.codes() + part.first * sizeof(int32_t);
    for (int64_t i = 0; i < part.layout.group_code_bytes(); i += kLineBytes) {
      __builtin_prefetch(lines[g] + i + kBytesAhead);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sums[g][r][v] = hn::Zero(kFloat);
    }
  }
  for (int64_t input = 0; input < group_size; input += CodeUnit::kInputs) {
    CodeUnit units[kGroups][kVectors];
#pragma GCC unroll 32
    for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) units[g][v].Load(lines[g] + v * kLanes * sizeof(int32_t));
      lines[g] += CodeUnit::kLines * kLineBytes;
    }
#pragma GCC unroll 32
    for (int i = 0; i < CodeUnit::kInputs; ++i) {
#pragma GCC unroll 32
      for (int g = 0; g < kGroups; ++g) {
        FloatVec weights[kVectors];
#pragma GCC unroll 32
        for (int v = 0; v < kVectors; ++v) weights[v] = units[g][v].Value(i);
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
          const FloatVec value = hn::Set(kFloat, x[(g * kRows + r) * row_floats + input + i]);
#pragma GCC unroll 32
          for (int v = 0; v < kVectors; ++v) sums[g][r][v] = hn::MulAdd(weights[v], value, sums[g][r][v]);
        }
      }
    }
  }
#pragma GCC unroll 32
  for (int g = 0; g < kGroups; ++g, at.Next()) {
    AddScaled<kRows>(part, at, x + g * kRows * row_floats, sums[g]);
  }
}

// At most kBlockRows rows. Functions of their own compile faster than one with all of them.
template <int kBits, bool kIsE2m1, int kRows = kBlockRows>
HWY_NOINLINE void MultiplyBlock(const Part& part, GroupCursor<const std::byte> at, const float* x, int64_t num_groups) {
  if constexpr (kRows > 1) {
    if (part.num_rows < kRows) return MultiplyBlock<kBits, kIsE2m1, kRows - 1>(part, at, x, num_groups);
  }
  // The lines of more groups of 6 bits would take the registers of the sums.
  constexpr int kGroups = kBits == 6 ? 1 : HWY_MAX(kChains / (kRows * kVectors), 1);
  const int64_t group_floats = kRows * part.row_floats();
  int64_t group = 0;
  for (; group + kGroups <= num_groups; group += kGroups) {
    MultiplyGroups<kBits, kIsE2m1, kRows, kGroups>(part, at, x + group * group_floats);
  }
  for (; group < num_groups; ++group) MultiplyGroups<kBits, kIsE2m1, kRows, 1>(part, at, x + group * group_floats);
}

// Blocks of rows take turns within a group, whose codes then are in the cache.
template <int kBits, bool kIsE2m1>
HWY_INLINE void MultiplyPart(const Part& part, GroupCursor<const std::byte> at, const float* x, int64_t num_groups) {
  const int64_t num_rows = part.num_rows, row_floats = part.row_floats();
  const int64_t num_blocks = (num_rows + kBlockRows - 1) / kBlockRows;
  const int64_t step = num_blocks == 1 ? num_groups : 1;
  Part block = part;
  for (int64_t group = 0; group < num_groups; group += step, at.Next(), x += num_rows * row_floats) {
    for (int64_t b = 0; b < num_blocks; ++b) {
      const int64_t first = num_rows * b / num_blocks;
      block.num_rows = num_rows * (b + 1) / num_blocks - first;
      block.totals = part.totals + first * part.stride;
      MultiplyBlock<kBits, kIsE2m1>(block, at, x + first * row_floats, step);
    }
  }
}

template <int kBits, bool kIsE2m1>
void Multiply(const MatMulTile& tile) {
  const IntegerPanels& layout = *tile.integers;
  const int64_t first_group = tile.first_input / layout.group_size;
  const int64_t num_groups = tile.end_input / layout.group_size - first_group;
  for (int64_t p = 0; p < tile.num_panels; ++p) {
    float* totals = tile.sums + p * kPanelWidth;
    if (tile.first_input == 0) {
      for (int64_t r = 0; r < tile.num_rows; ++r) std::fill_n(totals + r * tile.sums_stride, kPanelWidth, 0.0f);
    }
    const GroupCursor<const std::byte> at(layout, tile.panels + p * tile.panel_bytes, first_group);
    for (int first = 0; first < kPanelWidth; first += kPartWidth) {
      const Part part = {layout, first, tile.num_rows, totals + first, tile.sums_stride};
      const float* x = static_cast<const float*>(tile.x) + first_group * tile.num_rows * part.row_floats();
      MultiplyPart<kBits, kIsE2m1>(part, at, x, num_groups);
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
