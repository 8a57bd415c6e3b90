// SPDX-License-Identifier: Apache-2.0
// The rows that panels of integers multiply, packed as [K / group][rows]{values of the group, RowGroup}.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul/matmul_kernel.h"

namespace foretoken::kernels::cpu {

// What a group of a row is multiplied with besides its values. Where the rows are int8, all of it counts in integers.
struct RowGroup {
  float scale = 1;     // of the integers; 1 where the row stays bf16
  float sum = 0;       // of the group's values, for the offsets
  int32_t start = 0;   // -center times the sum of the integers, for codes that count from zero
  int32_t unused = 0;  // makes 16 bytes, so that groups stay aligned
};

// The values stay bf16.
void PackBf16RowGroups(const PackArgs& args);
// The values become int8. `quantize` writes the integers of a group, whose values from `count` on are zero.
using QuantizeRow = RowGroup (*)(const uint16_t* x, int64_t count, const IntegerPanels& panels, std::byte* integers);
void PackInt8RowGroups(const PackArgs& args, QuantizeRow quantize);
// Either as f32: integers if the panels say so.
void PackWideRowGroups(const PackArgs& args);

}  // namespace foretoken::kernels::cpu
