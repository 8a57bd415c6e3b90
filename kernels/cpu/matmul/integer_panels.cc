// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/integer_panels.h"

#include <bit>
#include <cstring>

#include "kernels/check.h"

namespace foretoken::kernels::cpu {
namespace {

constexpr int kOutputs = 16;

// Where a code of a group lies: a byte, and the lowest bit in it.
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

void StoreScale(DType dtype, float scale, std::byte* to, int i) {
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

float LoadScale(DType dtype, const std::byte* from, int i) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(from)[i];
  return FloatFromBf16(reinterpret_cast<const uint16_t*>(from)[i]);
}

// Puts a group's codes of an output at their places (PlaceOf), eight inputs at a time: with 4 bits they are one word of
// 32 bits, with 8 bits two words of 32 or four of 16. The words of an output lie 16 words apart.
template <IntegerOrder kOrder, int kBits>
void PackGroup(const uint8_t* codes, int64_t group_size, int output, std::byte* to) {
  static_assert(std::endian::native == std::endian::little);
  for (int64_t input = 0; input < group_size; input += 8) {
    uint64_t eight = 0;  // code i is byte i
    std::memcpy(&eight, codes + input, sizeof(eight));
    const auto store = [&](auto word, int64_t i) {
      std::memcpy(to + (i * kOutputs + output) * sizeof(word), &word, sizeof(word));
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

auto PackGroupOf(const IntegerPanels& layout) {
  if (layout.bits == 4) {
    return layout.order == IntegerOrder::kQuads ? PackGroup<IntegerOrder::kQuads, 4>
                                                : PackGroup<IntegerOrder::kPairs, 4>;
  }
  return layout.order == IntegerOrder::kQuads ? PackGroup<IntegerOrder::kQuads, 8> : PackGroup<IntegerOrder::kPairs, 8>;
}

}  // namespace

void PackIntegers(const IntegerPanels& layout, const PanelIntegers& from, std::byte* panel) {
  const auto pack_group = PackGroupOf(layout);
  for (int output = 0; output < kOutputs; ++output) {
    for (int64_t group = 0; group < layout.num_groups; ++group) {
      const int64_t source = output * layout.num_groups + group;
      pack_group(from.codes + source * layout.group_size, layout.group_size, output, panel + layout.codes_at(group));
      StoreScale(layout.scale_dtype, from.scales[source], panel + layout.scales_at(group), output);
      if (layout.has_offsets) StoreScale(DType::kF32, from.offsets[source], panel + layout.offsets_at(group), output);
    }
  }
}

void ReadValues(const IntegerPanels& layout, const std::byte* panel, int output, int64_t count, float* values) {
  const uint8_t flip = Flip(layout);
  for (int64_t input = 0; input < count; ++input) {
    const int64_t group = input / layout.group_size;
    const Place place = PlaceOf(layout, output, input % layout.group_size);
    const auto byte = static_cast<uint8_t>(panel[layout.codes_at(group) + place.byte]);
    const int code = ((byte >> place.shift) & ((1 << layout.bits) - 1)) ^ flip;
    values[input] = LoadScale(layout.scale_dtype, panel + layout.scales_at(group), output) *
                    static_cast<float>(code - layout.center());
    if (layout.has_offsets) values[input] += LoadScale(DType::kF32, panel + layout.offsets_at(group), output);
  }
}

}  // namespace foretoken::kernels::cpu
