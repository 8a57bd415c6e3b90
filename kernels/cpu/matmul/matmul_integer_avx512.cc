// SPDX-License-Identifier: Apache-2.0
// A tile takes one panel and up to 16 rows. For each group of inputs it multiplies the codes into fresh sums, one for
// every row, and then adds scale times sum to the row's totals. So sums within a group do not wait for those of the
// last one, and one panel keeps the units busy.
//
//   rows of int8: total += (weight scale * row scale) * (exact integer sum)
//   rows of bf16: total += weight scale * (f32 sum over the group's pairs, in order)
//   and, with offsets: total += offset * (sum of the row's group)
#include "kernels/cpu/matmul/matmul_integer_avx512.h"

#include "kernels/check.h"

#if defined(__x86_64__)
// GCC 12's header starts many results as undefined registers, and then warns of them itself.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/matmul/integer_rows.h"
#include "kernels/cpu/matmul/weight.h"

// The compiler takes AVX-512-BF16 only where an intrinsic asks for it, so rows of int8 need VNNI alone.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni")

namespace foretoken::kernels::cpu {
namespace {

constexpr int kMaxRows = 16;
constexpr int64_t kLineBytes = 64;

// One row follows the processor's prefetchers best. With more, arithmetic fills the reorder buffer before it reaches
// the next lines.
constexpr int64_t BytesAhead(int num_rows) { return num_rows >= 2 ? 3072 : 0; }

inline __m512 LoadFloats(const std::byte* values, DType dtype) {
  if (dtype == DType::kF32) return _mm512_load_ps(values);
  const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(values));
  if (dtype == DType::kF16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// 16 signed bytes.
inline __m512 Widen(const std::byte* codes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(codes))));
}

// A group's, of all outputs. Products of F16 and factors are exact, so an offset is rounded once.
inline __m512 LoadScales(const IntegerPanels& layout, const GroupCursor<const std::byte>& at) {
  if (!layout.blocks) return LoadFloats(at.scales(), layout.scale_dtype);
  return _mm512_mul_ps(LoadFloats(at.block_scales(), DType::kF16), Widen(at.scales()));
}
inline __m512 LoadOffsets(const IntegerPanels& layout, const GroupCursor<const std::byte>& at, __m512 scales) {
  if (!layout.blocks) return LoadFloats(at.offsets(), DType::kF32);
  const __m512 zero = _mm512_set1_ps(static_cast<float>(layout.blocks->zero));
  const __m512 minimums = LoadFloats(at.block_minimums(), DType::kF16);
  return _mm512_fnmadd_ps(minimums, Widen(at.offsets()), _mm512_mul_ps(zero, scales));
}

inline __m512i Broadcast(const std::byte* x) {
  int32_t bits;
  __builtin_memcpy(&bits, x, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

// The sums of a group of codes and every row. The group's size is known to the compiler, so that a row's values stand
// at a constant distance from the first row's.
template <int kBits, bool kInt8Rows, bool kIsE2m1, int kGroupSize, int kRows>
struct Sums;

// The lines that are unpacked together, and their inputs.
constexpr int64_t UnitLines(int bits) { return bits == 6 ? 3 : 1; }
constexpr int64_t UnitInputs(int bits) { return UnitLines(bits) * 32 / bits; }

template <int kBits, bool kIsE2m1, int kGroupSize, int kRows>
struct Sums<kBits, true, kIsE2m1, kGroupSize, kRows> {
  static constexpr int64_t kRowBytes = kGroupSize + static_cast<int64_t>(sizeof(RowGroup));
  __m512i values[kRows];

  void Start(const std::array<const RowGroup*, kRows>& rows) {
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) values[r] = _mm512_set1_epi32(rows[r]->start);
  }
  void Add(const std::byte* lines, const std::byte* x) {
    const __m512i codes = _mm512_load_si512(lines), half = _mm512_set1_epi8(15);
    if constexpr (kBits == 8) {
      AddCodes(codes, x);
    } else if constexpr (kBits == 4) {
      AddCodes(Unsigned(_mm512_and_si512(codes, half)), x);
      AddCodes(Unsigned(_mm512_and_si512(_mm512_srli_epi16(codes, 4), half)), x + 4);
    } else {
      const __m512i second = _mm512_load_si512(lines + kLineBytes), upper = _mm512_load_si512(lines + 2 * kLineBytes);
      const auto join = [half](__m512i lower, __m512i shifted_upper) {
        const __m512i two = _mm512_and_si512(shifted_upper, _mm512_set1_epi8(0x30));
        return _mm512_ternarylogic_epi32(lower, half, two, 0xea);  // (lower & half) | two
      };
      AddCodes(join(codes, _mm512_slli_epi16(upper, 4)), x);
      AddCodes(join(_mm512_srli_epi16(codes, 4), _mm512_slli_epi16(upper, 2)), x + 4);
      AddCodes(join(second, upper), x + 8);
      AddCodes(join(_mm512_srli_epi16(second, 4), _mm512_srli_epi16(upper, 2)), x + 12);
    }
  }
  // What codes of 4 bits stand for, counted from the least one.
  static __m512i Unsigned(__m512i codes) {
    if constexpr (!kIsE2m1) return codes;
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kE2m1Levels.data()));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), codes);
  }
  // Of four inputs.
  void AddCodes(__m512i codes, const std::byte* x) {
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) values[r] = _mm512_dpbusd_epi32(values[r], codes, Broadcast(x + r * kRowBytes));
  }
  __m512 AddTo(__m512 total, int r, __m512 scales, const RowGroup& row) const {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(values[r]), _mm512_mul_ps(scales, _mm512_set1_ps(row.scale)), total);
  }
};

template <int kBits, bool kIsE2m1, int kGroupSize, int kRows>
struct Sums<kBits, false, kIsE2m1, kGroupSize, kRows> {
  static constexpr int64_t kRowBytes = 2 * kGroupSize + static_cast<int64_t>(sizeof(RowGroup));
  __m512 values[kRows];

  void Start(const std::array<const RowGroup*, kRows>&) {
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) values[r] = _mm512_setzero_ps();
  }
  void Add(const std::byte* lines, const std::byte* x) {
    if constexpr (kBits == 8) {
      for (int pair = 0; pair < 2; ++pair) {
        const __m512 first = Widen(lines + pair * 32), second = Widen(lines + pair * 32 + 16);
        AddPair(_mm512_cvtne2ps_pbh(second, first), x + pair * 4);
      }
    } else if constexpr (kBits == 6) {
      const __m512i first = _mm512_load_si512(lines), second = _mm512_load_si512(lines + kLineBytes);
      const __m512i upper = _mm512_load_si512(lines + 2 * kLineBytes);
      AddPair(LookUp(first, _mm512_slli_epi16(upper, 4)), x);
      AddPair(LookUp(_mm512_srli_epi16(first, 4), _mm512_slli_epi16(upper, 2)), x + 4);
      AddPair(LookUp(_mm512_srli_epi16(first, 8), upper), x + 8);
      AddPair(LookUp(_mm512_srli_epi16(first, 12), _mm512_srli_epi16(upper, 2)), x + 12);
      AddPair(LookUp(second, _mm512_srli_epi16(upper, 4)), x + 16);
      AddPair(LookUp(_mm512_srli_epi16(second, 4), _mm512_srli_epi16(upper, 6)), x + 20);
      AddPair(LookUp(_mm512_srli_epi16(second, 8), _mm512_srli_epi16(upper, 8)), x + 24);
      AddPair(LookUp(_mm512_srli_epi16(second, 12), _mm512_srli_epi16(upper, 10)), x + 28);
    } else {
      // bf16 of what codes stand for, twice: the instruction looks at five bits, and so the bits above a code need no
      // mask.
      alignas(64) static constexpr std::array<uint16_t, 32> kValues = [] {
        std::array<uint16_t, 32> values = {};
        for (int code = 0; code < 32; ++code) {
          values[code] =
              Bf16FromFloat(static_cast<float>(kIsE2m1 ? kE2m1Levels[code % 16] - kE2m1Zero : code % 16 - 8));
        }
        return values;
      }();
      const __m512i table = _mm512_load_si512(kValues.data());
      const __m512i words = _mm512_load_si512(lines);
      AddPair((__m512bh)_mm512_permutexvar_epi16(words, table), x);
      AddPair((__m512bh)_mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), table), x + 4);
      AddPair((__m512bh)_mm512_permutexvar_epi16(_mm512_srli_epi16(words, 8), table), x + 8);
      AddPair((__m512bh)_mm512_permutexvar_epi16(_mm512_srli_epi16(words, 12), table), x + 12);
    }
  }
  // bf16 of the codes of 6 bits: bits 0 to 3 of `lower`, and bits 4 and 5 of `upper`. The instruction looks at six
  // bits.
  static __m512bh LookUp(__m512i lower, __m512i upper) {
    alignas(64) static constexpr std::array<uint16_t, 64> kValues = [] {
      std::array<uint16_t, 64> values = {};
      for (int code = 0; code < 64; ++code) values[code] = Bf16FromFloat(static_cast<float>(code - 32));
      return values;
    }();
    const __m512i codes = _mm512_ternarylogic_epi32(_mm512_set1_epi16(15), lower, upper, 0xca);  // 15 ? lower : upper
    return (__m512bh)_mm512_permutex2var_epi16(_mm512_load_si512(kValues.data()), codes,
                                               _mm512_load_si512(kValues.data() + 32));
  }
  void AddPair(__m512bh weights, const std::byte* x) {
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
      values[r] = _mm512_dpbf16_ps(values[r], weights, (__m512bh)Broadcast(x + r * kRowBytes));
    }
  }
  __m512 AddTo(__m512 total, int r, __m512 scales, const RowGroup&) const {
    return _mm512_fmadd_ps(values[r], scales, total);
  }
};

template <int kBits, bool kInt8Rows, bool kIsE2m1, int kGroupSize, int kRows>
void MultiplyPanel(const MatMulTile& tile, const std::byte* panel, float* sums) {
  using GroupSums = Sums<kBits, kInt8Rows, kIsE2m1, kGroupSize, kRows>;
  constexpr int64_t kRowBytes = GroupSums::kRowBytes;
  constexpr int64_t kUnitBytes = UnitLines(kBits) * kLineBytes, kUnitInputs = UnitInputs(kBits);
  constexpr int64_t kBytesAhead = BytesAhead(kRows);
  const IntegerPanels layout = *tile.integers;
  __m512 totals[kRows];
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
    totals[r] = tile.first_input != 0 ? _mm512_load_ps(sums + r * tile.sums_stride) : _mm512_setzero_ps();
  }
  const int64_t first_group = tile.first_input / kGroupSize;
  GroupCursor<const std::byte> at(layout, panel, first_group);
  for (int64_t group = first_group; group < tile.end_input / kGroupSize; ++group, at.Next()) {
    const std::byte* lines = at.codes();
    const std::byte* x = static_cast<const std::byte*>(tile.x) + group * kRows * kRowBytes;
    std::array<const RowGroup*, kRows> rows;
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
      rows[r] = reinterpret_cast<const RowGroup*>(x + (r + 1) * kRowBytes - static_cast<int64_t>(sizeof(RowGroup)));
    }
    GroupSums group_sums;
    group_sums.Start(rows);
#pragma GCC unroll 4
    for (int64_t unit = 0; unit < kGroupSize / kUnitInputs; ++unit, lines += kUnitBytes) {
      if constexpr (kBytesAhead != 0) {
        for (int64_t at = 0; at < kUnitBytes; at += kLineBytes) _mm_prefetch(lines + at + kBytesAhead, _MM_HINT_T0);
      }
      group_sums.Add(lines, x + unit * kUnitInputs * (kInt8Rows ? 1 : 2));
    }
    if constexpr (kBytesAhead != 0) _mm_prefetch(at.scales() + kBytesAhead, _MM_HINT_T0);
    const __m512 group_scales = LoadScales(layout, at);
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) totals[r] = group_sums.AddTo(totals[r], r, group_scales, *rows[r]);
    if (layout.has_offsets) {
      const __m512 group_offsets = LoadOffsets(layout, at, group_scales);
#pragma GCC unroll 32
      for (int r = 0; r < kRows; ++r) {
        totals[r] = _mm512_fmadd_ps(group_offsets, _mm512_set1_ps(rows[r]->sum), totals[r]);
      }
    }
  }
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) _mm512_store_ps(sums + r * tile.sums_stride, totals[r]);
}

template <int kBits, bool kInt8Rows, bool kIsE2m1, int kGroupSize, int kRows>
void MultiplyRows(const MatMulTile& tile) {
  for (int64_t p = 0; p < tile.num_panels; ++p) {
    MultiplyPanel<kBits, kInt8Rows, kIsE2m1, kGroupSize, kRows>(tile, tile.panels + p * tile.panel_bytes,
                                                                tile.sums + p * kPanelWidth);
  }
}

template <int kBits, bool kInt8Rows, bool kIsE2m1, int kGroupSize, int... kRowsLessOne>
constexpr auto MakeTable(std::integer_sequence<int, kRowsLessOne...>) {
  return std::array{&MultiplyRows<kBits, kInt8Rows, kIsE2m1, kGroupSize, kRowsLessOne + 1>...};
}

template <int kBits, bool kInt8Rows, bool kIsE2m1, int kGroupSize>
void Multiply(const MatMulTile& tile) {
  static constexpr auto kTable =
      MakeTable<kBits, kInt8Rows, kIsE2m1, kGroupSize>(std::make_integer_sequence<int, kMaxRows>());
  kTable[tile.num_rows - 1](tile);
}

// A group's values, from 16 to 16, with zeros after the row's last input.
inline __m512 LoadValues(const uint16_t* x, int64_t count) {
  const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffff : (1 << std::max<int64_t>(count, 0)) - 1);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, x)), 16));
}

// QuantizeRowGroup, with the same bits.
RowGroup QuantizeGroupOfRow(const uint16_t* x, int64_t count, const IntegerPanels& layout, std::byte* integers) {
  // The bits of magnitudes are in the order of the values, and a NaN is above all.
  __m512i largest = _mm512_setzero_si512();
  for (int64_t i = 0; i < layout.group_size; i += 16) {
    largest = _mm512_max_epu32(_mm512_castps_si512(_mm512_abs_ps(LoadValues(x + i, count - i))), largest);
  }
  const float max = std::bit_cast<float>(_mm512_reduce_max_epu32(largest));
  const float scale = max / 127;
  if (!(scale >= std::numeric_limits<float>::min()) || std::isinf(scale)) {
    std::fill_n(integers, layout.group_size, std::byte{0});
    const float shown = std::isfinite(scale) ? 0 : std::numeric_limits<float>::quiet_NaN();
    return {.scale = shown, .sum = shown};
  }
  const __m512 inverse = _mm512_set1_ps(127 / max);
  __m512i sums = _mm512_setzero_si512();
  for (int64_t i = 0; i < layout.group_size; i += 16) {
    const __m512 scaled = _mm512_roundscale_ps(_mm512_mul_ps(LoadValues(x + i, count - i), inverse), 0);
    const __m512 limited = _mm512_min_ps(_mm512_max_ps(scaled, _mm512_set1_ps(-127)), _mm512_set1_ps(127));
    const __m512i rounded = _mm512_cvtps_epi32(limited);
    sums = _mm512_add_epi32(sums, rounded);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(integers + i), _mm512_cvtepi32_epi8(rounded));
  }
  const int32_t sum = _mm512_reduce_add_epi32(sums);
  return {.scale = scale, .sum = scale * static_cast<float>(sum), .start = -layout.center() * sum};
}

void PackInt8Rows(const PackArgs& args) { PackInt8RowGroups(args, QuantizeGroupOfRow); }

MatMulTileShape TileShape(int64_t num_rows) {
  const int64_t num_blocks = (num_rows + kMaxRows - 1) / kMaxRows;
  return {(num_rows + num_blocks - 1) / num_blocks, 1, 1};
}

template <int kBits, bool kInt8Rows, int kGroupSize, bool kIsE2m1 = false>
const MatMulKernel& Kernel() {
  static constexpr MatMulKernel kKernel = {.packed_bytes_per_input = kInt8Rows ? 1 : 2,
                                           .packed_bytes_per_group = sizeof(RowGroup),
                                           .tile_shape = TileShape,
                                           .pack = kInt8Rows ? PackInt8Rows : PackBf16RowGroups,
                                           .multiply = Multiply<kBits, kInt8Rows, kIsE2m1, kGroupSize>};
  return kKernel;
}

template <int kBits, bool kInt8Rows>
const MatMulKernel& KernelOfGroups(int64_t group_size) {
  if (group_size == 16) return Kernel<kBits, kInt8Rows, 16>();
  if constexpr (kBits != 6) {  // NarrowGroups
    if (group_size == 64) return Kernel<kBits, kInt8Rows, 64>();
    if (group_size == 128) return Kernel<kBits, kInt8Rows, 128>();
  }
  FT_CHECK(group_size == 32);
  return Kernel<kBits, kInt8Rows, 32>();
}

template <bool kInt8Rows>
const MatMulKernel& KernelOf(const IntegerPanels& panels) {
  if (panels.is_e2m1) {
    FT_CHECK(panels.group_size == 16 || panels.group_size == 32);
    return panels.group_size == 16 ? Kernel<4, kInt8Rows, 16, true>() : Kernel<4, kInt8Rows, 32, true>();
  }
  switch (panels.bits) {
    case 4:
      return KernelOfGroups<4, kInt8Rows>(panels.group_size);
    case 6:
      return KernelOfGroups<6, kInt8Rows>(panels.group_size);
    default:
      return KernelOfGroups<8, kInt8Rows>(panels.group_size);
  }
}

}  // namespace

const MatMulKernel& Avx512IntegerKernel(const IntegerPanels& panels) {
  FT_CHECK(panels.order == Avx512OrderOf(panels.int8_rows));
  return panels.int8_rows ? KernelOf<true>(panels) : KernelOf<false>(panels);
}

}  // namespace foretoken::kernels::cpu

HWY_POP_ATTRIBUTES

#else

namespace foretoken::kernels::cpu {

const MatMulKernel& Avx512IntegerKernel(const IntegerPanels&) { FT_CHECK(false); }

}  // namespace foretoken::kernels::cpu

#endif
