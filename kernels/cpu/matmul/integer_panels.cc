// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/integer_panels.h"

#include <bit>
#include <cstring>

#include "kernels/check.h"

namespace foretoken::kernels::cpu {
namespace {

constexpr int kOutputs = 16;

// Where a code lies: a byte, and the lowest bit in it.
struct Place {
  int64_t byte = 0;
  int shift = 0;
};

Place PlaceOf(const IntegerPanels& layout, int output, int64_t input) {
  if (layout.order == IntegerOrder::kQuads) {
    if (layout.bits == 8) return {(input / 4 * kOutputs + output) * 4 + input % 4, 0};
    return {(input / 8 * kOutputs + output) * 4 + input % 4, input % 8 < 4 ? 0 : 4};
  }
  if (layout.bits == 8) return {(input / 2 * kOutputs + output) * 2 + input % 2, 0};
  const int64_t pair = input % 8 / 2;  // of its word
  return {((input / 8 * kOutputs + output) * 2 + input % 2) * 2 + pair / 2, static_cast<int>(pair % 2 * 4)};
}

// Pairs of bytes are signed: a kernel widens them so.
uint8_t Flip(const IntegerPanels& layout) {
  return layout.order == IntegerOrder::kPairs && layout.bits == 8 ? 0x80 : 0;
}

void StoreScale(DType dtype, float scale, std::byte* to, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(to + i * sizeof(float), &scale, sizeof(float));
      return;
    case DType::kBF16: {
      const uint16_t bits = Bf16FromFloat(scale);
      std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
      return;
    }
    default:
      FT_CHECK(false);
  }
}

float LoadScale(DType dtype, const std::byte* from, int64_t i) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(from)[i];
  return FloatFromBf16(reinterpret_cast<const uint16_t*>(from)[i]);
}

// Puts the codes of an output at their places (PlaceOf), eight inputs at a time: with 4 bits they are one word of 32
// bits, with 8 bits two words of 32 or four of 16. The words of an output lie 16 words apart.
template <IntegerOrder kOrder, int kBits>
void PackOutput(const IntegerPanels& layout, const uint8_t* all_codes, int output, uint8_t* panel) {
  static_assert(std::endian::native == std::endian::little);
  const int64_t num_inputs = layout.num_groups * layout.group_size;  // a multiple of 32
  const uint8_t* codes = all_codes + output * num_inputs;
  for (int64_t input = 0; input < num_inputs; input += 8) {
    uint64_t eight = 0;  // code i is byte i
    std::memcpy(&eight, codes + input, sizeof(eight));
    const auto store = [&](auto word, int64_t i) {
      std::memcpy(panel + (i * kOutputs + output) * sizeof(word), &word, sizeof(word));
    };
    if constexpr (kBits == 4 && kOrder == IntegerOrder::kQuads) {
      store(static_cast<uint32_t>(eight | eight >> 28), input / 8);
    } else if constexpr (kBits == 4) {
      const uint64_t pairs = eight | eight >> 12;  // bytes 0, 1, 4 and 5 hold codes i and i + 2
      store(static_cast<uint32_t>((pairs & 0xff) | (pairs >> 32 & 0xff) << 8 | (pairs >> 8 & 0xff) << 16 |
                                  (pairs >> 40 & 0xff) << 24),
            input / 8);
    } else if constexpr (kOrder == IntegerOrder::kQuads) {
      store(static_cast<uint32_t>(eight), input / 4);
      store(static_cast<uint32_t>(eight >> 32), input / 4 + 1);
    } else {
      eight ^= 0x8080808080808080u;
      for (int i = 0; i < 4; ++i) store(static_cast<uint16_t>(eight >> (16 * i)), input / 2 + i);
    }
  }
}

}  // namespace

void PackIntegers(const IntegerPanels& layout, const PanelIntegers& from, std::byte* panel) {
  auto* bytes = reinterpret_cast<uint8_t*>(panel);
  const bool is_quads = layout.order == IntegerOrder::kQuads;
  for (int output = 0; output < kOutputs; ++output) {
    if (layout.bits == 4) {
      is_quads ? PackOutput<IntegerOrder::kQuads, 4>(layout, from.codes, output, bytes)
               : PackOutput<IntegerOrder::kPairs, 4>(layout, from.codes, output, bytes);
    } else {
      is_quads ? PackOutput<IntegerOrder::kQuads, 8>(layout, from.codes, output, bytes)
               : PackOutput<IntegerOrder::kPairs, 8>(layout, from.codes, output, bytes);
    }
    for (int64_t group = 0; group < layout.num_groups; ++group) {
      const int64_t i = group * kOutputs + output, source = output * layout.num_groups + group;
      StoreScale(layout.scale_dtype, from.scales[source], panel + layout.scales_at(), i);
      if (layout.has_offsets) StoreScale(DType::kF32, from.offsets[source], panel + layout.offsets_at(), i);
    }
  }
}

void ReadValues(const IntegerPanels& layout, const std::byte* panel, int output, int64_t count, float* values) {
  const uint8_t flip = Flip(layout);
  const auto* bytes = reinterpret_cast<const uint8_t*>(panel);
  for (int64_t input = 0; input < count; ++input) {
    const Place place = PlaceOf(layout, output, input);
    const int code = ((bytes[place.byte] >> place.shift) & ((1 << layout.bits) - 1)) ^ flip;
    const int64_t i = input / layout.group_size * kOutputs + output;
    values[input] =
        LoadScale(layout.scale_dtype, panel + layout.scales_at(), i) * static_cast<float>(code - layout.center());
    if (layout.has_offsets) values[input] += LoadScale(DType::kF32, panel + layout.offsets_at(), i);
  }
}

}  // namespace foretoken::kernels::cpu
