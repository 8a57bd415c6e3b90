// SPDX-License-Identifier: Apache-2.0
// The kernel for panels of integers and rows of int8 in vectors of 256 bits, over a policy for products of bytes, so
// that tests can run it on an emulation. Its sums are those of the AVX-512 kernel, bit for bit: sums of integers are
// exact, and the totals are added alike. A vector has eight of the panel's outputs, so a panel takes two.
//
// struct Bytes {
//   static constexpr bool kHasDots;
//   static __m256i AddDots(__m256i sums, __m256i codes, __m256i x);  // if so: adds 4 unsigned times 4 signed bytes
// };
//
// Without such dots, one instruction multiplies unsigned with signed bytes and adds pairs of products in 16 bits, where
// a sum that does not fit would be cut. Codes of 4 bits are the unsigned bytes. A pair's sum is at most 2 * 15 * 127,
// so 16 bits hold the sum of eight pairs, and 32 inputs are added before the sums are widened. Those of E2M1 become
// their levels, at most 24, and 16 inputs are added. Codes of 6 bits are unsigned bytes, too, and 16 bits hold two
// pairs, at most 4 * 63 * 127. Codes of 8 bits would be cut. There the unsigned bytes are the magnitudes of the
// weights, and the row's bytes take the weights' signs: a pair's sum is at most 2 * 128 * 127, which fits.
//
// A source that includes this file defines FORETOKEN_BYTES_TARGET before, the instruction sets of its policy: at least
// "avx2,fma,f16c".
#pragma once

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/check.h"
#include "kernels/cpu/matmul/integer_panels.h"
#include "kernels/cpu/matmul/integer_rows.h"
#include "kernels/cpu/matmul/matmul_kernel.h"
#include "kernels/cpu/matmul/weight.h"

HWY_PUSH_ATTRIBUTES(FORETOKEN_BYTES_TARGET)

namespace foretoken::kernels::cpu::vectors256 {
namespace {

constexpr int kMaxRows = 8;  // their sums, and a line's codes, fill the registers
constexpr int kVectors = 2;  // of a panel
constexpr int64_t kLineBytes = 64, kVectorBytes = 32;
// Arithmetic fills the reorder buffer before it reaches the next lines, so the code fetches them itself: on an AMD EPYC
// one row of 4-bit integers came from memory at 11 GB/s a core in place of 6.
constexpr int64_t kBytesAhead = 3072;

inline __m256 LoadFloats(const std::byte* values, DType dtype, int vector) {
  if (dtype == DType::kF32) return _mm256_load_ps(reinterpret_cast<const float*>(values) + vector * 8);
  const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(values) + vector);
  if (dtype == DType::kF16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

inline __m256 LoadFactors(const std::byte* factors, int vector) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(factors + vector * 8));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

// A group's, of a vector's outputs. Products of F16 and factors are exact, so an offset is rounded once.
inline __m256 LoadScales(const IntegerPanels& layout, const GroupCursor<const std::byte>& at, int vector) {
  if (!layout.blocks) return LoadFloats(at.scales(), layout.scale_dtype, vector);
  return _mm256_mul_ps(LoadFloats(at.block_scales(), DType::kF16, vector), LoadFactors(at.scales(), vector));
}
inline __m256 LoadOffsets(const IntegerPanels& layout, const GroupCursor<const std::byte>& at, int vector,
                          __m256 scales) {
  if (!layout.blocks) return LoadFloats(at.offsets(), DType::kF32, vector);
  const __m256 zero = _mm256_set1_ps(static_cast<float>(layout.blocks->zero));
  const __m256 minimums = LoadFloats(at.block_minimums(), DType::kF16, vector);
  return _mm256_fnmadd_ps(minimums, LoadFactors(at.offsets(), vector), _mm256_mul_ps(zero, scales));
}

inline __m256i Broadcast(const std::byte* x) {
  int32_t bits;
  __builtin_memcpy(&bits, x, sizeof(bits));
  return _mm256_set1_epi32(bits);
}

inline __m256i Load(const std::byte* line) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(line)); }

// The compiler must have the sum here. It would compute all products of a group first, for which there are too few
// registers, and then add them.
inline void KeepInRegister(__m256i& sum) { asm("" : "+x"(sum)); }

// The sums of a group's codes, of a vector's outputs, and every row. `lines` is where the vector's part of the group's
// first line lies.
template <class Bytes, int kBits, bool kIsE2m1, int kGroupSize, int kRows>
struct Sums {
  static constexpr bool kCountsFromZero = Bytes::kHasDots || kBits != 8;
  static constexpr int64_t kRowBytes = kGroupSize + static_cast<int64_t>(sizeof(RowGroup));
  __m256i values[kRows];

  void Compute(const std::byte* lines, const std::byte* x, const std::array<const RowGroup*, kRows>& rows) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      values[r] = kCountsFromZero ? _mm256_set1_epi32(rows[r]->start) : _mm256_setzero_si256();
    }
    if constexpr (kBits == 8) {
#pragma GCC unroll 4
      for (int64_t line = 0; line < kGroupSize / 4; ++line) AddLine(lines + line * kLineBytes, x + line * 4);
    } else if constexpr (kBits == 6) {
      for (int64_t input = 0; input < kGroupSize; input += 16) AddSixteen(lines + input * 12, x + input);
    } else {
      constexpr int64_t kLines = kGroupSize == 16 || kIsE2m1 ? 2 : 4;  // of pairs of products that fit
      for (int64_t first = 0; first < kGroupSize / 8; first += kLines) {
        AddLines<kLines>(lines + first * kLineBytes, x + first * 8);
      }
    }
  }

  void AddLine(const std::byte* line, const std::byte* x) {
    if constexpr (Bytes::kHasDots) return AddFour(Load(line), x);
    const __m256i weights = _mm256_xor_si256(Load(line), _mm256_set1_epi8(-128));  // code - 128
    const __m256i magnitudes = _mm256_abs_epi8(weights);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(Broadcast(x + r * kRowBytes), weights));
      values[r] = _mm256_add_epi32(values[r], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      KeepInRegister(values[r]);
    }
  }

  // Of four inputs, and of eight.
  void AddFour(__m256i codes, const std::byte* x) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      values[r] = Bytes::AddDots(values[r], codes, Broadcast(x + r * kRowBytes));
      KeepInRegister(values[r]);
    }
  }

  void AddEight(__m256i first, __m256i second, const std::byte* x) {
    if constexpr (Bytes::kHasDots) {
      AddFour(first, x);
      return AddFour(second, x + 4);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(first, Broadcast(x + r * kRowBytes)),
                                             _mm256_maddubs_epi16(second, Broadcast(x + r * kRowBytes + 4)));
      values[r] = _mm256_add_epi32(values[r], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      KeepInRegister(values[r]);
    }
  }

  // Codes of 6 bits of 16 inputs: three lines.
  void AddSixteen(const std::byte* lines, const std::byte* x) {
    const __m256i half = _mm256_set1_epi8(15), upper_two = _mm256_set1_epi8(0x30);
    const __m256i upper = Load(lines + 2 * kLineBytes);
    const auto join = [&](__m256i lower, __m256i shifted_upper) {
      return _mm256_or_si256(_mm256_and_si256(lower, half), _mm256_and_si256(shifted_upper, upper_two));
    };
    const __m256i first = Load(lines), second = Load(lines + kLineBytes);
    AddEight(join(first, _mm256_slli_epi16(upper, 4)), join(_mm256_srli_epi16(first, 4), _mm256_slli_epi16(upper, 2)),
             x);
    AddEight(join(second, upper), join(_mm256_srli_epi16(second, 4), _mm256_srli_epi16(upper, 2)), x + 8);
  }

  // What codes of 4 bits stand for, counted from the least one.
  static __m256i Unsigned(__m256i codes) {
    if constexpr (!kIsE2m1) return codes;
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kE2m1Levels.data()));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes);
  }

  template <int64_t kLines>
  void AddLines(const std::byte* lines, const std::byte* x) {
    [[maybe_unused]] __m256i pairs[kRows];
#pragma GCC unroll 4
    for (int64_t line = 0; line < kLines; ++line) {
      const __m256i codes = Load(lines + line * kLineBytes), half = _mm256_set1_epi8(15);
      const __m256i low = Unsigned(_mm256_and_si256(codes, half));
      const __m256i high = Unsigned(_mm256_and_si256(_mm256_srli_epi16(codes, 4), half));
      if constexpr (Bytes::kHasDots) {
        AddEight(low, high, x + line * 8);
        continue;
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256i of_low = _mm256_maddubs_epi16(low, Broadcast(x + r * kRowBytes + line * 8));
        const __m256i of_high = _mm256_maddubs_epi16(high, Broadcast(x + r * kRowBytes + line * 8 + 4));
        pairs[r] = line == 0 ? of_low : _mm256_add_epi16(pairs[r], of_low);
        pairs[r] = _mm256_add_epi16(pairs[r], of_high);
        KeepInRegister(pairs[r]);
      }
    }
    if constexpr (Bytes::kHasDots) return;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      values[r] = _mm256_add_epi32(values[r], _mm256_madd_epi16(pairs[r], _mm256_set1_epi16(1)));
    }
  }
};

template <class Bytes, int kBits, bool kIsE2m1, int kGroupSize, int kRows>
void MultiplyPanel(const MatMulTile& tile, const std::byte* panel, float* sums) {
  using GroupSums = Sums<Bytes, kBits, kIsE2m1, kGroupSize, kRows>;
  constexpr int64_t kRowBytes = GroupSums::kRowBytes;
  const IntegerPanels layout = *tile.integers;
  __m256 totals[kVectors][kRows];
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      totals[v][r] = tile.first_input != 0 ? _mm256_load_ps(sums + r * tile.sums_stride + v * 8) : _mm256_setzero_ps();
    }
  }
  const int64_t first_group = tile.first_input / kGroupSize;
  GroupCursor<const std::byte> at(layout, panel, first_group);
  for (int64_t group = first_group; group < tile.end_input / kGroupSize; ++group, at.Next()) {
    const std::byte* x = static_cast<const std::byte*>(tile.x) + group * kRows * kRowBytes;
    std::array<const RowGroup*, kRows> rows;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      rows[r] = reinterpret_cast<const RowGroup*>(x + (r + 1) * kRowBytes - static_cast<int64_t>(sizeof(RowGroup)));
    }
    const std::byte* lines = at.codes();
#pragma GCC unroll 16
    for (int64_t line = 0; line < kGroupSize * 2 * kBits; line += kLineBytes) {
      _mm_prefetch(lines + line + kBytesAhead, _MM_HINT_T0);
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      GroupSums group_sums;
      group_sums.Compute(lines + v * kVectorBytes, x, rows);
      const __m256 scales = LoadScales(layout, at, v);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        totals[v][r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(group_sums.values[r]),
                                       _mm256_mul_ps(scales, _mm256_set1_ps(rows[r]->scale)), totals[v][r]);
      }
      if (!layout.has_offsets) continue;
      const __m256 offsets = LoadOffsets(layout, at, v, scales);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        totals[v][r] = _mm256_fmadd_ps(offsets, _mm256_set1_ps(rows[r]->sum), totals[v][r]);
      }
    }
  }
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) _mm256_store_ps(sums + r * tile.sums_stride + v * 8, totals[v][r]);
  }
}

template <class Bytes, int kBits, bool kIsE2m1, int kGroupSize, int kRows = kMaxRows>
void Multiply(const MatMulTile& tile) {
  if constexpr (kRows > 1) {
    if (tile.num_rows < kRows) return Multiply<Bytes, kBits, kIsE2m1, kGroupSize, kRows - 1>(tile);
  }
  for (int64_t p = 0; p < tile.num_panels; ++p) {
    MultiplyPanel<Bytes, kBits, kIsE2m1, kGroupSize, kRows>(tile, tile.panels + p * tile.panel_bytes,
                                                            tile.sums + p * kPanelWidth);
  }
}

// QuantizeRowGroup, with the same bits.
RowGroup QuantizeGroupOfRow(const uint16_t* x, int64_t count, const IntegerPanels& layout, std::byte* integers) {
  alignas(32) uint16_t padded[128];
  if (count < layout.group_size) {
    std::fill_n(padded, layout.group_size, uint16_t{0});
    std::copy_n(x, std::max<int64_t>(count, 0), padded);
    x = padded;
  }
  const auto values_at = [x](int64_t i) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
  };
  // The bits of magnitudes are in the order of the values, and a NaN is above all.
  __m256i largest = _mm256_setzero_si256();
  for (int64_t i = 0; i < layout.group_size; i += 8) {
    largest = _mm256_max_epu32(_mm256_and_si256(values_at(i), _mm256_set1_epi32(0x7fffffff)), largest);
  }
  alignas(32) uint32_t magnitudes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(magnitudes), largest);
  const float max = std::bit_cast<float>(*std::max_element(magnitudes, magnitudes + 8));
  const float scale = max / 127;
  if (!(scale >= std::numeric_limits<float>::min()) || std::isinf(scale)) {
    std::fill_n(integers, layout.group_size, std::byte{0});
    const float shown = std::isfinite(scale) ? 0 : std::numeric_limits<float>::quiet_NaN();
    return {.scale = shown, .sum = shown};
  }
  const __m256 inverse = _mm256_set1_ps(127 / max);
  __m256i sums = _mm256_setzero_si256();
  for (int64_t i = 0; i < layout.group_size; i += 8) {
    const __m256 scaled = _mm256_round_ps(_mm256_mul_ps(_mm256_castsi256_ps(values_at(i)), inverse),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 limited = _mm256_min_ps(_mm256_max_ps(scaled, _mm256_set1_ps(-127)), _mm256_set1_ps(127));
    const __m256i rounded = _mm256_cvtps_epi32(limited);
    sums = _mm256_add_epi32(sums, rounded);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(integers + i), _mm_packs_epi16(words, words));
  }
  alignas(32) int32_t parts[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(parts), sums);
  const int32_t sum = std::accumulate(parts, parts + 8, 0);
  return {.scale = scale, .sum = scale * static_cast<float>(sum), .start = -layout.center() * sum};
}

void PackInt8Rows(const PackArgs& args) { PackInt8RowGroups(args, QuantizeGroupOfRow); }

MatMulTileShape TileShape(int64_t num_rows) {
  const int64_t num_blocks = (num_rows + kMaxRows - 1) / kMaxRows;
  return {(num_rows + num_blocks - 1) / num_blocks, 1, 1};
}

template <class Bytes, int kBits, int kGroupSize, bool kIsE2m1 = false>
const MatMulKernel& Kernel() {
  static constexpr MatMulKernel kKernel = {.packed_bytes_per_input = 1,
                                           .packed_bytes_per_group = sizeof(RowGroup),
                                           .tile_shape = TileShape,
                                           .pack = PackInt8Rows,
                                           .multiply = Multiply<Bytes, kBits, kIsE2m1, kGroupSize>};
  return kKernel;
}

template <class Bytes, int kBits>
const MatMulKernel& KernelOfGroups(int64_t group_size) {
  if (group_size == 16) return Kernel<Bytes, kBits, 16>();
  if constexpr (kBits != 6) {  // NarrowGroups
    if (group_size == 64) return Kernel<Bytes, kBits, 64>();
    if (group_size == 128) return Kernel<Bytes, kBits, 128>();
  }
  FT_CHECK(group_size == 32);
  return Kernel<Bytes, kBits, 32>();
}

template <class Bytes>
const MatMulKernel& IntegerKernelOf(const IntegerPanels& panels) {
  FT_CHECK(panels.order == IntegerOrder::kQuads && panels.int8_rows);
  if (panels.is_e2m1) {
    FT_CHECK(panels.group_size == 16 || panels.group_size == 32);
    return panels.group_size == 16 ? Kernel<Bytes, 4, 16, true>() : Kernel<Bytes, 4, 32, true>();
  }
  switch (panels.bits) {
    case 4:
      return KernelOfGroups<Bytes, 4>(panels.group_size);
    case 6:
      return KernelOfGroups<Bytes, 6>(panels.group_size);
    default:
      return KernelOfGroups<Bytes, 8>(panels.group_size);
  }
}

}  // namespace
}  // namespace foretoken::kernels::cpu::vectors256

HWY_POP_ATTRIBUTES
