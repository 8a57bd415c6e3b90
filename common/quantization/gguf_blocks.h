// SPDX-License-Identifier: Apache-2.0
// GGUF's blocks of quantised values. Each type is groups of integers with a scale, and for some types a minimum:
//   value = scale * integer            or   value = scale * integer + minimum,
// computed in f32, each operation rounded. These are the values of ggml, bit for bit.
//
//   const BlockFormat* format = FindBlockFormat("Q4_K");
//   GroupedBlock block;
//   format->decode(bytes, block);
//
// Source: ggml-org/ggml, src/ggml-common.h (layouts), src/ggml-quants.c (values).
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "kernels/dtype.h"

namespace foretoken::quantization {

inline constexpr int64_t kMaxBlockValues = 256;
inline constexpr int64_t kMaxBlockGroups = 16;

struct GroupedBlock {
  std::array<int8_t, kMaxBlockValues> integers;
  std::array<float, kMaxBlockGroups> scales;
  std::array<float, kMaxBlockGroups> minimums;  // only if the format has them
};

// Of the K types: scale = scale of the block * factor, minimum = -(minimum of the block * factor).
struct BlockFactors {
  uint16_t scale = 0, minimum = 0;  // F16
  std::array<int8_t, kMaxBlockGroups> scale_factors = {}, minimum_factors = {};
};

struct BlockFormat {
  absl::string_view name;  // of the tensor's type
  int64_t block_values = 0;
  int64_t block_bytes = 0;
  int64_t group_size = 0;
  int bits = 0;    // 4, 6 or 8: a code of so many bits holds integer - lowest
  int lowest = 0;  // integer
  bool has_minimums = false;
  kernels::DType scale_dtype = kernels::DType::kF32;  // holds every scale exactly
  void (*decode)(const uint8_t* bytes, GroupedBlock& block) = nullptr;
  BlockFactors (*factors)(const uint8_t* bytes) = nullptr;  // null: the format has none
  bool is_e2m1 = false;                                     // as IntegerGroups

  int64_t num_groups() const { return block_values / group_size; }
};

// Null: it is no type of blocks.
const BlockFormat* FindBlockFormat(absl::string_view type);

}  // namespace foretoken::quantization
