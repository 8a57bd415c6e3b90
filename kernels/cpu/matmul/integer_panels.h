// SPDX-License-Identifier: Apache-2.0
// How a panel of 16 outputs keeps integers: chunks of groups of inputs, each chunk with its tables of scales and then
// its codes. So a kernel reads a panel from the first byte to the last. Scales that stood apart were a second stream,
// beside which the first came at two thirds of its speed.
//
// The value of a code is scale * (code - center) + offset, center = 2^(bits - 1). Codes of E2M1 are indices of
// kE2m1Levels: there it is scale * (level - center) + offset, center = kE2m1Zero. Inputs beyond K have the value
// `offset`; outputs beyond N have the scale 0.
//
// The tables of a chunk of two groups:        scales [2][16], offsets f32 [2][16] if there are any.
// The tables of a block of scales, a chunk:   its scale and its minimum, F16 [16] each, factors of scales [groups][16],
//                                             factors of minimums [groups][16] if there are offsets.
#pragma once

#include <array>
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

// Twice the values of E2M1, 0 0.5 1 1.5 2 3 4 6 and the same below zero, counted from the least one. A byte holds each,
// and 16 bits hold the sum of 5 pairs of products of them with integers of a row.
inline constexpr std::array<uint8_t, 16> kE2m1Levels = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
inline constexpr int kE2m1Zero = 12;  // the level of 0

struct IntegerPanels {
  int bits = 8;  // 4, 6 or 8
  int64_t group_size = 32;
  int64_t num_groups = 0;             // num_groups * group_size inputs, padding included
  DType scale_dtype = DType::kBF16;   // or F16 or F32
  std::optional<ScaleBlocks> blocks;  // scales are products, and scale_dtype says nothing
  bool has_offsets = false;           // f32, or products, too
  bool int8_rows = false;             // the rows that the panels multiply are rounded to int8
  IntegerOrder order = IntegerOrder::kQuads;
  bool is_e2m1 = false;  // with 4 bits

  int center() const { return is_e2m1 ? kE2m1Zero : 1 << (bits - 1); }
  // Of the codes that PackIntegers takes (IntegerGroups).
  int source_bits() const { return is_e2m1 ? 6 : bits; }
  int64_t chunk_groups() const { return blocks ? blocks->num_groups : 2; }
  int64_t chunk_bytes() const { return table_bytes() + chunk_groups() * group_code_bytes(); }
  int64_t group_code_bytes() const { return group_size * 2 * bits; }
  // A multiple of 64.
  int64_t table_bytes() const {
    if (!blocks) return chunk_groups() * (scale_bytes() + offset_bytes());
    return (kBlockBytes + chunk_groups() * (scale_bytes() + offset_bytes()) + 63) / 64 * 64;
  }
  // Of a group, in its table: 16 floats or, with blocks, 16 factors.
  int64_t scale_bytes() const { return 16 * (blocks ? 1 : static_cast<int64_t>(SizeOf(scale_dtype))); }
  int64_t offset_bytes() const { return has_offsets ? 16 * (blocks ? 1 : static_cast<int64_t>(sizeof(float))) : 0; }
  size_t num_bytes() const {
    const int64_t num_chunks = (num_groups + chunk_groups() - 1) / chunk_groups();
    return static_cast<size_t>(num_groups * group_code_bytes() + num_chunks * table_bytes());
  }

  static constexpr int64_t kBlockBytes = 2 * 16 * sizeof(uint16_t);  // a block's scale and minimum
};

// Goes from group to group of a panel. Codes and offsets of floats are aligned to 64.
template <typename Byte>
class GroupCursor {
 public:
  GroupCursor(const IntegerPanels& layout, Byte* panel, int64_t group)
      : chunk_groups_(layout.chunk_groups()),
        chunk_bytes_(layout.chunk_bytes()),
        table_bytes_(layout.table_bytes()),
        code_bytes_(layout.group_code_bytes()),
        scale_bytes_(layout.scale_bytes()),
        offset_bytes_(layout.offset_bytes()),
        scales_at_(layout.blocks ? IntegerPanels::kBlockBytes : 0) {
    const int64_t before = group % chunk_groups_;
    StartChunk(panel + group / chunk_groups_ * chunk_bytes_);
    for (int64_t i = 0; i < before; ++i) Next();
  }

  void Next() {
    codes_ += code_bytes_;
    scales_ += scale_bytes_;
    offsets_ += offset_bytes_;
    if (--groups_left_ == 0) StartChunk(chunk_ + chunk_bytes_);
  }

  Byte* codes() const { return codes_; }
  // With blocks, of the group's block: F16 [16].
  Byte* block_scales() const { return chunk_; }
  Byte* block_minimums() const { return chunk_ + IntegerPanels::kBlockBytes / 2; }
  // With blocks, the factors of scales and of minimums: signed bytes [16].
  Byte* scales() const { return scales_; }
  Byte* offsets() const { return offsets_; }

 private:
  void StartChunk(Byte* chunk) {
    chunk_ = chunk;
    codes_ = chunk + table_bytes_;
    scales_ = chunk + scales_at_;
    offsets_ = scales_ + chunk_groups_ * scale_bytes_;
    groups_left_ = chunk_groups_;
  }

  int64_t chunk_groups_, chunk_bytes_, table_bytes_, code_bytes_, scale_bytes_, offset_bytes_, scales_at_;
  Byte* chunk_;
  Byte* codes_;
  Byte* scales_;
  Byte* offsets_;
  int64_t groups_left_;
};

// A panel's integers, output by output. Either scales and offsets or, with blocks, factors.
struct PanelIntegers {
  const uint8_t* codes = nullptr;         // [16, num_groups * group_size] of source_bits
  const float* scales = nullptr;          // [16, num_groups]; scale_dtype holds them exactly
  const float* offsets = nullptr;         // [16, num_groups], if the panels have offsets
  const ScaleFactors* factors = nullptr;  // of 16 rows
};
void PackIntegers(const IntegerPanels& layout, const PanelIntegers& from, std::byte* panel);

// Writes the values of inputs [0, count) of an output of the panel.
void ReadValues(const IntegerPanels& layout, const std::byte* panel, int output, int64_t count, float* values);

}  // namespace foretoken::kernels::cpu
