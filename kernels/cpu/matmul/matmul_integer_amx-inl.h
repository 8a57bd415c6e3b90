// SPDX-License-Identifier: Apache-2.0
// The kernel for panels of integers and up to 16 rows of int8 on AMX, over a policy for the tile registers
// (amx_tiles.h). Its sums are those of the AVX-512 kernel, bit for bit: sums of integers are exact, and both
// kernels add them to the totals in the same order.
//
// Up to four groups of a panel are multiplied at a time, each into an accumulator. A group's codes, a byte each, are a
// B tile: inputs / 4 rows of 16 outputs x 4 inputs. Codes of 8 bits lie so in the panel. Other codes are first widened
// into memory; the kernel widens the next groups while the tiles multiply the present ones. A group of the packed rows
// is an A tile. The sums come back through memory to be scaled.
//   accumulators 0..3 are groups, A is 4, B is 5
//
// Highway compiles this file once per instruction set, so it has no #pragma once.
#if defined(FORETOKEN_KERNELS_CPU_MATMUL_MATMUL_INTEGER_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FORETOKEN_KERNELS_CPU_MATMUL_MATMUL_INTEGER_AMX_INL_H_
#undef FORETOKEN_KERNELS_CPU_MATMUL_MATMUL_INTEGER_AMX_INL_H_
#else
#define FORETOKEN_KERNELS_CPU_MATMUL_MATMUL_INTEGER_AMX_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"
#include "kernels/cpu/matmul/amx_tiles.h"
#include "kernels/cpu/matmul/integer_panels-inl.h"
#include "kernels/cpu/matmul/integer_rows.h"
#include "kernels/cpu/matmul/matmul_kernel.h"
#include "kernels/cpu/matmul/weight.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

template <class Tiles>
class AmxIntegerTile {
 public:
  // At most 16 rows.
  static void Multiply(const MatMulTile& tile) {
    const IntegerPanels& layout = *tile.integers;
    Configure(tile.num_rows, std::min(layout.group_size, kMaxTileInputs));
    for (int64_t p = 0; p < tile.num_panels; ++p) {
      MultiplyPanel(tile, layout, tile.panels + p * tile.panel_bytes, tile.sums + p * kPanelWidth);
    }
    Tiles::Release();
  }

 private:
  static constexpr int kAccumulators = 4;
  static constexpr int64_t kMaxGroupSize = 128, kMaxTileInputs = 64, kLineBytes = 64;
  static constexpr int64_t kBytesAhead = 3072;  // as in the AVX-512 kernel
  static constexpr std::make_integer_sequence<int, kAccumulators> kEachAccumulator{};
  using ByteTag = hn::CappedTag<uint8_t, kLineBytes>;
  using ByteVec = hn::Vec<ByteTag>;
  using GroupSums = int32_t[kTileRows][kPanelWidth];

  // The codes of up to four groups.
  struct CodeBytes {
    int64_t num_groups;
    const std::byte* groups[kAccumulators];
    alignas(64) std::byte widened[kAccumulators][kMaxGroupSize * kPanelWidth];
  };

  static void Configure(int64_t num_rows, int64_t num_inputs) {
    TileConfig config;
    for (int tile = 0; tile < kAccumulators; ++tile) config.Set(tile, num_rows);
    config.Set(4, num_rows, num_inputs);
    config.Set(5, num_inputs / 4);
    Tiles::Configure(config);
  }

  static void MultiplyPanel(const MatMulTile& tile, const IntegerPanels& layout, const std::byte* panel, float* sums) {
    if (tile.first_input == 0) {
      for (int64_t r = 0; r < tile.num_rows; ++r) std::fill_n(sums + r * tile.sums_stride, kPanelWidth, 0.0f);
    }
    const int64_t first_group = tile.first_input / layout.group_size;
    const int64_t end_group = tile.end_input / layout.group_size;
    const int64_t row_bytes = layout.group_size + static_cast<int64_t>(sizeof(RowGroup));
    const std::byte* x = static_cast<const std::byte*>(tile.x) + first_group * tile.num_rows * row_bytes;
    GroupCursor<const std::byte> at(layout, panel, first_group), codes_at = at;
    CodeBytes codes[2];
    alignas(64) GroupSums group_sums[kAccumulators];
    int64_t groups_left = end_group - first_group;
    ReadCodes(layout, groups_left, codes_at, codes[0]);
    for (int now = 0; groups_left > 0; now = 1 - now) {
      MultiplyGroups(kEachAccumulator, codes[now], x, tile.num_rows, row_bytes, layout.group_size, group_sums);
      groups_left -= codes[now].num_groups;
      ReadCodes(layout, groups_left, codes_at, codes[1 - now]);
      for (int64_t g = 0; g < codes[now].num_groups; ++g, at.Next(), x += tile.num_rows * row_bytes) {
        AddScaled(tile, layout, at, group_sums[g], x + layout.group_size, row_bytes, sums);
      }
    }
  }

  static void ReadCodes(const IntegerPanels& layout, int64_t groups_left, GroupCursor<const std::byte>& at,
                        CodeBytes& codes) {
    codes.num_groups = std::min<int64_t>(groups_left, kAccumulators);
    for (int64_t g = 0; g < codes.num_groups; ++g, at.Next()) {
      const std::byte* lines = at.codes();
      for (int64_t i = 0; i < layout.group_code_bytes(); i += kLineBytes) __builtin_prefetch(lines + i + kBytesAhead);
      codes.groups[g] = layout.bits == 8 ? lines : codes.widened[g];
      if (layout.bits == 6) Widen6(lines, layout.group_size, codes.widened[g]);
      if (layout.bits == 4) Widen4(lines, layout.group_size, layout.is_e2m1, codes.widened[g]);
    }
  }

  static ByteVec Line(const std::byte* line) { return hn::Load(ByteTag(), reinterpret_cast<const uint8_t*>(line)); }
  static void StoreLine(ByteVec codes, std::byte* line) {
    hn::Store(codes, ByteTag(), reinterpret_cast<uint8_t*>(line));
  }

  static ByteVec LevelsOf(ByteVec codes) {
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(ByteTag(), kE2m1Levels[hn::GetLane(codes)]);
#else
    return hn::TableLookupBytes(hn::LoadDup128(ByteTag(), kE2m1Levels.data()), codes);
#endif
  }

  static void Widen4(const std::byte* lines, int64_t group_size, bool is_e2m1, std::byte* to) {
    const auto half = hn::Set(ByteTag(), 15);
    for (int64_t input = 0; input < group_size; input += 8, lines += kLineBytes, to += 2 * kLineBytes) {
      for (size_t i = 0; i < kLineBytes; i += hn::Lanes(ByteTag())) {
        const auto codes = Line(lines + i);
        const auto low = hn::And(codes, half), high = hn::ShiftRight<4>(codes);
        StoreLine(is_e2m1 ? LevelsOf(low) : low, to + i);
        StoreLine(is_e2m1 ? LevelsOf(high) : high, to + kLineBytes + i);
      }
    }
  }

  static void Widen6(const std::byte* lines, int64_t group_size, std::byte* to) {
    const auto half = hn::Set(ByteTag(), 15), upper_two = hn::Set(ByteTag(), 0x30);
    const auto join = [&](ByteVec lower, ByteVec upper) {
      return hn::Or(hn::And(lower, half), hn::And(upper, upper_two));
    };
    for (int64_t input = 0; input < group_size; input += 16, lines += 3 * kLineBytes, to += 4 * kLineBytes) {
      for (size_t i = 0; i < kLineBytes; i += hn::Lanes(ByteTag())) {
        const auto first = Line(lines + i), second = Line(lines + kLineBytes + i);
        const auto upper = Line(lines + 2 * kLineBytes + i);
        StoreLine(join(first, hn::ShiftLeft<4>(upper)), to + i);
        StoreLine(join(hn::ShiftRight<4>(first), hn::ShiftLeft<2>(upper)), to + kLineBytes + i);
        StoreLine(join(second, upper), to + 2 * kLineBytes + i);
        StoreLine(join(hn::ShiftRight<4>(second), hn::ShiftRight<2>(upper)), to + 3 * kLineBytes + i);
      }
    }
  }

  template <int... kAcc>
  static void MultiplyGroups(std::integer_sequence<int, kAcc...>, const CodeBytes& codes, const std::byte* x,
                             int64_t num_rows, int64_t row_bytes, int64_t group_size, GroupSums* sums) {
    const auto multiply = [&]<int kGroup>() {
      Tiles::template Zero<kGroup>();
      for (int64_t input = 0; input < group_size; input += kMaxTileInputs) {
        Tiles::template Load<4>(x + kGroup * num_rows * row_bytes + input, row_bytes);
        Tiles::template Load<5>(codes.groups[kGroup] + input * kPanelWidth, kTileRowBytes);
        Tiles::template MultiplyAddBytes<kGroup, 4, 5>();
      }
    };
    ((kAcc < codes.num_groups ? multiply.template operator()<kAcc>() : void()), ...);
    ((kAcc < codes.num_groups ? Tiles::template Store<kAcc>(sums[kAcc], kTileRowBytes) : void()), ...);
  }

  // `with` is where the first row's RowGroup lies.
  static void AddScaled(const MatMulTile& tile, const IntegerPanels& layout, const GroupCursor<const std::byte>& at,
                        const GroupSums& group_sums, const std::byte* with, int64_t row_bytes, float* sums) {
    const hn::RebindToSigned<FloatTag> int_tag;
    const int64_t num_rows = tile.num_rows, stride = tile.sums_stride;
    const auto row = [=](int64_t r) { return reinterpret_cast<const RowGroup*>(with + r * row_bytes); };
    for (size_t i = 0; i < kPanelWidth; i += hn::Lanes(kFloat)) {
      const FloatVec scales = LoadScales(layout, at, i);
#pragma GCC unroll 4
      for (int64_t r = 0; r < num_rows; ++r) {
        const auto sum = hn::Add(hn::Load(int_tag, group_sums[r] + i), hn::Set(int_tag, row(r)->start));
        float* total = sums + r * stride + i;
        hn::Store(hn::MulAdd(hn::ConvertTo(kFloat, sum), hn::Mul(scales, hn::Set(kFloat, row(r)->scale)),
                             hn::Load(kFloat, total)),
                  kFloat, total);
      }
      if (!layout.has_offsets) continue;
      const FloatVec offsets = LoadOffsets(layout, at, i, scales);
#pragma GCC unroll 4
      for (int64_t r = 0; r < num_rows; ++r) {
        float* total = sums + r * stride + i;
        hn::Store(hn::MulAdd(offsets, hn::Set(kFloat, row(r)->sum), hn::Load(kFloat, total)), kFloat, total);
      }
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // FORETOKEN_KERNELS_CPU_MATMUL_MATMUL_INTEGER_AMX_INL_H_
