// SPDX-License-Identifier: Apache-2.0
// How a panel of 16 outputs keeps integers: chunks of two groups of inputs, each with its codes, its scales [2][16],
// and its offsets [2][16] if there are any. So a kernel reads a panel from the first byte to the last. Scales that
// stood apart were a second stream, beside which the first came at two thirds of its speed.
//
// The value of a code is scale * (code - center) + offset, center = 2^(bits - 1). Inputs beyond K have the code
// `center`; outputs beyond N have the scale 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace foretoken::kernels::cpu {

// The order of a group's K codes. A line of 64 bytes holds 4 inputs of 8 bits, or 8 inputs of 4 bits, of all outputs.
enum class IntegerOrder {
  // [K / 4][16 outputs][4 inputs] bytes; with 4 bits [K / 8][16][4], inputs 0..3 in the low halves, 4..7 in the high
  // ones: what a dot of bytes takes.
  kQuads,
  // [K / 2][16 outputs][2 inputs] signed bytes; with 4 bits [K / 8][16][2] 16-bit words that hold the pairs 0..3 from
  // the low bits on: what widens to pairs of bf16.
  kPairs,
};

struct IntegerPanels {
  int bits = 8;  // or 4
  int64_t group_size = 32;
  int64_t num_groups = 0;  // num_groups * group_size inputs, padding included
  DType scale_dtype = DType::kBF16;
  bool has_offsets = false;  // f32
  bool int8_rows = false;    // the rows that the panels multiply are rounded to int8
  IntegerOrder order = IntegerOrder::kQuads;

  int center() const { return 1 << (bits - 1); }
  // Where the codes, scales and offsets of a group begin, in bytes. Codes and offsets are aligned to 64. If the groups
  // are odd in number, the last chunk has the codes of one.
  int64_t codes_at(int64_t group) const { return chunk_at(group) + group % 2 * code_bytes(); }
  int64_t scales_at(int64_t group) const { return tables_at(group) + group % 2 * scale_bytes(); }
  int64_t offsets_at(int64_t group) const { return tables_at(group) + 2 * scale_bytes() + group % 2 * kOffsetBytes; }
  size_t num_bytes() const {
    return static_cast<size_t>(num_groups * code_bytes() + (num_groups + 1) / 2 * table_bytes());
  }

 private:
  static constexpr int64_t kOffsetBytes = 16 * sizeof(float);  // of a group, as the next two

  int64_t code_bytes() const { return group_size * 2 * bits; }
  int64_t scale_bytes() const { return 16 * static_cast<int64_t>(SizeOf(scale_dtype)); }
  int64_t table_bytes() const { return 2 * (scale_bytes() + (has_offsets ? kOffsetBytes : 0)); }  // of a chunk
  int64_t chunk_at(int64_t group) const { return group / 2 * (2 * code_bytes() + table_bytes()); }
  int64_t tables_at(int64_t group) const {
    return chunk_at(group) + (group + 1 < num_groups || group % 2 == 1 ? 2 : 1) * code_bytes();
  }
};

// A panel's integers, output by output.
struct PanelIntegers {
  const uint8_t* codes = nullptr;  // [16, num_groups * group_size]
  const float* scales = nullptr;   // [16, num_groups]; scale_dtype holds them exactly
  const float* offsets = nullptr;  // [16, num_groups], if the panels have offsets
};
void PackIntegers(const IntegerPanels& layout, const PanelIntegers& from, std::byte* panel);

// Writes the values of inputs [0, count) of an output of the panel.
void ReadValues(const IntegerPanels& layout, const std::byte* panel, int output, int64_t count, float* values);

}  // namespace foretoken::kernels::cpu
