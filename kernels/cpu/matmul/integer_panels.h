// SPDX-License-Identifier: Apache-2.0
// How a panel of 16 outputs keeps integers: chunks of groups of inputs, each chunk with its tables of scales and then
// its codes. So a kernel reads a panel from the first byte to the last. Scales that stood apart were a second stream,
// beside which the first came at two thirds of its speed.
//
// The value of a code is scale * (code - center) + offset, center = 2^(bits - 1). Inputs beyond K have the code
// `center`; outputs beyond N have the scale 0.
//
// The tables of a chunk of two groups:        scales [2][16], offsets f32 [2][16] if there are any.
// The tables of a block of scales, a chunk:   its scale and its minimum, F16 [16] each, factors of scales [groups][16],
//                                             factors of minimums [groups][16] if there are offsets.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/dtype.h"
#include "kernels/stored_matrix.h"

namespace foretoken::kernels::cpu {

// The order of a group's K codes. A line of 64 bytes holds 4 inputs of 8 bits, or 8 inputs of 4 bits, of all outputs.
// Codes of 6 bits are three lines for 16 inputs: two lines of their lower 4 bits, and one of their upper 2.
enum class IntegerOrder {
  // [K / 4][16 outputs][4 inputs] bytes; with 4 bits [K / 8][16][4], inputs 0..3 in the low halves, 4..7 in the high
  // ones: what a dot of bytes takes. The line of upper bits is [16][4], input i of 16 in byte i % 4 from bit i / 4 * 2.
  kQuads,
  // [K / 2][16 outputs][2 inputs] signed bytes; with 4 bits [K / 8][16][2] 16-bit words that hold the pairs 0..3 from
  // the low bits on: what widens to pairs of bf16. The line of upper bits is [16][2] such words of the pairs 0..7.
  kPairs,
};

struct IntegerPanels {
  int bits = 8;  // 4, 6 or 8
  int64_t group_size = 32;
  int64_t num_groups = 0;             // num_groups * group_size inputs, padding included
  DType scale_dtype = DType::kBF16;   // or F16 or F32
  std::optional<ScaleBlocks> blocks;  // scales are products, and scale_dtype says nothing
  bool has_offsets = false;           // f32, or products, too
  bool int8_rows = false;             // the rows that the panels multiply are rounded to int8
  IntegerOrder order = IntegerOrder::kQuads;

  int center() const { return 1 << (bits - 1); }
  // Where the codes, scales and offsets of a group begin, in bytes. Codes and offsets are aligned to 64.
  int64_t codes_at(int64_t group) const {
    return chunk_at(group) + table_bytes() + within_chunk(group) * group_code_bytes();
  }
  int64_t scales_at(int64_t group) const { return chunk_at(group) + group % 2 * scale_bytes(); }
  int64_t offsets_at(int64_t group) const { return chunk_at(group) + 2 * scale_bytes() + group % 2 * kOffsetBytes; }
  // With blocks. The block's minimum follows its scale.
  int64_t block_scales_at(int64_t group) const { return chunk_at(group); }
  int64_t scale_factors_at(int64_t group) const {
    return chunk_at(group) + kBlockBytes + within_chunk(group) * kFactorBytes;
  }
  int64_t minimum_factors_at(int64_t group) const { return scale_factors_at(group) + chunk_groups() * kFactorBytes; }

  size_t num_bytes() const {
    const int64_t num_chunks = (num_groups + chunk_groups() - 1) / chunk_groups();
    return static_cast<size_t>(num_groups * group_code_bytes() + num_chunks * table_bytes());
  }

 private:
  // Of 16 outputs.
  static constexpr int64_t kOffsetBytes = 16 * sizeof(float);
  static constexpr int64_t kBlockBytes = 2 * 16 * sizeof(uint16_t);
  static constexpr int64_t kFactorBytes = 16;

  int64_t group_code_bytes() const { return group_size * 2 * bits; }
  int64_t scale_bytes() const { return 16 * static_cast<int64_t>(SizeOf(scale_dtype)); }
  int64_t chunk_groups() const { return blocks ? blocks->num_groups : 2; }
  int64_t table_bytes() const {
    if (blocks) return (kBlockBytes + blocks->num_groups * kFactorBytes * (has_offsets ? 2 : 1) + 63) / 64 * 64;
    return 2 * (scale_bytes() + (has_offsets ? kOffsetBytes : 0));
  }
  // A chunk's groups are a power of two.
  int64_t within_chunk(int64_t group) const { return group & (chunk_groups() - 1); }
  int64_t chunk_at(int64_t group) const {
    return (group >> std::countr_zero(static_cast<uint64_t>(chunk_groups()))) *
           (table_bytes() + chunk_groups() * group_code_bytes());
  }
};

// A panel's integers, output by output. Either scales and offsets or, with blocks, factors.
struct PanelIntegers {
  const uint8_t* codes = nullptr;         // [16, num_groups * group_size]
  const float* scales = nullptr;          // [16, num_groups]; scale_dtype holds them exactly
  const float* offsets = nullptr;         // [16, num_groups], if the panels have offsets
  const ScaleFactors* factors = nullptr;  // of 16 rows
};
void PackIntegers(const IntegerPanels& layout, const PanelIntegers& from, std::byte* panel);

// Writes the values of inputs [0, count) of an output of the panel.
void ReadValues(const IntegerPanels& layout, const std::byte* panel, int output, int64_t count, float* values);

}  // namespace foretoken::kernels::cpu
