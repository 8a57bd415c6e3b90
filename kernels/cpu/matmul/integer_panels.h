// SPDX-License-Identifier: Apache-2.0
// How a panel of 16 outputs keeps integers: all codes, then the scales [groups][16], then the offsets [groups][16] if
// there are any. A kernel streams the codes and the much shorter scales.
//
// The value of a code is scale * (code - center) + offset, center = 2^(bits - 1). Inputs beyond K have the code
// `center`; outputs beyond N have the scale 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace foretoken::kernels::cpu {

// The order of a panel's codes. A line of 64 bytes holds 4 inputs of 8 bits, or 8 inputs of 4 bits, of all outputs.
enum class IntegerOrder {
  // [K / 4][16 outputs][4 inputs] bytes; with 4 bits [K / 8][16][4], inputs 0..3 in the low halves, 4..7 in the high
  // ones: what a dot of bytes takes.
  kQuads,
  // [K / 2][16 outputs][2 inputs] signed bytes; with 4 bits [K / 8][16][2] 16-bit words that hold the pairs 0..3 from
  // the
  // low bits on: what widens to pairs of bf16.
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
  size_t scales_at() const { return static_cast<size_t>(num_groups * group_size * 2 * bits); }
  size_t offsets_at() const { return scales_at() + Padded(num_groups * 16 * SizeOf(scale_dtype)); }
  size_t num_bytes() const { return offsets_at() + (has_offsets ? num_groups * 16 * sizeof(float) : 0); }

 private:
  static size_t Padded(size_t num_bytes) { return (num_bytes + 63) / 64 * 64; }
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
