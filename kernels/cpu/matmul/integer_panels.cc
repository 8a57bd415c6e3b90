// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/integer_panels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/check.h"

namespace foretoken::kernels::cpu {
namespace {

constexpr int kOutputs = 16;

constexpr int64_t kLineBytes = 64;
constexpr int64_t kMaxE2m1Group = 32;

// Where bits of a code of a group lie: a byte, and the lowest bit in it.
struct Place {
  int64_t byte = 0;
  int shift = 0;
};

// Of all bits of a code of 4 or 8, and of the lower four of a code of 6.
Place PlaceOf(const IntegerPanels& layout, int output, int64_t input) {
  if (layout.order == IntegerOrder::kQuads && layout.bits == 8) {
    return {(input / 4 * kOutputs + output) * 4 + input % 4, 0};
  }
  if (layout.bits == 8) return {(input / 2 * kOutputs + output) * 2 + input % 2, 0};
  const int64_t line = (layout.bits == 6 ? input / 16 * 3 + input % 16 / 8 : input / 8) * kLineBytes;
  if (layout.order == IntegerOrder::kQuads) return {line + output * 4 + input % 4, input % 8 < 4 ? 0 : 4};
  const int64_t pair = input % 8 / 2;  // of its word
  return {line + (output * 2 + input % 2) * 2 + pair / 2, static_cast<int>(pair % 2 * 4)};
}

// Of the upper two bits of a code of 6.
Place UpperPlaceOf(const IntegerPanels& layout, int output, int64_t input) {
  const int64_t line = (input / 16 * 3 + 2) * kLineBytes, i = input % 16;
  if (layout.order == IntegerOrder::kQuads) return {line + output * 4 + i % 4, static_cast<int>(i / 4 * 2)};
  const int64_t pair = i / 2;
  return {line + (output * 2 + i % 2) * 2 + pair / 4, static_cast<int>(pair % 4 * 2)};
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
    case DType::kF16:
    case DType::kBF16: {
      const uint16_t bits = dtype == DType::kF16 ? F16FromFloat(scale) : Bf16FromFloat(scale);
      std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
      return;
    }
    default:
      FT_CHECK(false);
  }
}

float LoadScale(DType dtype, const std::byte* from, int i) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(from)[i];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(from)[i];
  return dtype == DType::kF16 ? FloatFromF16(bits) : FloatFromBf16(bits);
}

// The codes of eight inputs, a byte each, as 32 bits of halves of bytes.
template <IntegerOrder kOrder>
uint32_t HalvesOf(uint64_t eight) {
  if constexpr (kOrder == IntegerOrder::kQuads) return static_cast<uint32_t>(eight | eight >> 28);
  const uint64_t pairs = eight | eight >> 12;  // bytes 0, 1, 4 and 5 hold codes i and i + 2
  return static_cast<uint32_t>((pairs & 0xff) | (pairs >> 32 & 0xff) << 8 | (pairs >> 8 & 0xff) << 16 |
                               (pairs >> 40 & 0xff) << 24);
}

// The upper bits of eight codes of 6 bits, the first or the second of the sixteen that share a line.
template <IntegerOrder kOrder>
uint32_t UpperBitsOf(uint64_t eight, bool is_second) {
  if constexpr (kOrder == IntegerOrder::kQuads) {
    const uint64_t upper = eight >> 4 & 0x0303030303030303u;
    return static_cast<uint32_t>(upper | upper >> 30) << (is_second ? 4 : 0);
  }
  std::array<uint32_t, 2> words = {};
  for (int i = 0; i < 8; ++i) words[i % 2] |= static_cast<uint32_t>(eight >> (8 * i + 4) & 3) << (i / 2 * 2);
  return (words[0] | words[1] << 16) << (is_second ? 8 : 0);
}

// Puts a group's codes of an output at their places (PlaceOf), eight inputs at a time: with 4 bits they are one word of
// 32 bits, with 8 bits two words of 32 or four of 16. The words of an output lie 16 words apart.
template <IntegerOrder kOrder, int kBits>
void PackGroup(const uint8_t* codes, int64_t group_size, int output, std::byte* to) {
  static_assert(std::endian::native == std::endian::little);
  uint32_t upper = 0;  // with 6 bits, the upper bits of 16 inputs
  for (int64_t input = 0; input < group_size; input += 8) {
    uint64_t eight = 0;  // code i is byte i
    std::memcpy(&eight, codes + input, sizeof(eight));
    const auto store = [&](auto word, int64_t i) {
      std::memcpy(to + (i * kOutputs + output) * sizeof(word), &word, sizeof(word));
    };
    if constexpr (kBits == 4) {
      store(HalvesOf<kOrder>(eight), input / 8);
    } else if constexpr (kBits == 6) {
      store(HalvesOf<kOrder>(eight & 0x0f0f0f0f0f0f0f0fu), input / 16 * 3 + input % 16 / 8);
      upper |= UpperBitsOf<kOrder>(eight, input % 16 == 8);
      if (input % 16 == 8) {
        store(upper, input / 16 * 3 + 2);
        upper = 0;
      }
    } else if constexpr (kOrder == IntegerOrder::kQuads) {
      store(static_cast<uint32_t>(eight), input / 4);
      store(static_cast<uint32_t>(eight >> 32), input / 4 + 1);
    } else {
      eight ^= 0x8080808080808080u;
      for (int i = 0; i < 4; ++i) store(static_cast<uint16_t>(eight >> (16 * i)), input / 2 + i);
    }
  }
}

// The codes of E2M1 for codes of 6 bits that stand for the same values.
constexpr std::array<uint8_t, 64> kE2m1Codes = [] {
  std::array<uint8_t, 64> codes = {};
  for (int code = 15; code >= 0; --code) codes[32 + kE2m1Levels[code] - kE2m1Zero] = static_cast<uint8_t>(code);
  return codes;
}();

template <IntegerOrder kOrder>
auto PackGroupOf(int bits) {
  switch (bits) {
    case 4:
      return PackGroup<kOrder, 4>;
    case 6:
      return PackGroup<kOrder, 6>;
    default:
      FT_CHECK(bits == 8);
      return PackGroup<kOrder, 8>;
  }
}

void StoreFactors(const ScaleFactors& from, const IntegerPanels& layout, int output, int64_t group,
                  const GroupCursor<std::byte>& at) {
  const int64_t num_blocks = static_cast<int64_t>(from.scales.size()) / kOutputs;
  const int64_t block = output * num_blocks + group / layout.blocks->num_groups;
  reinterpret_cast<uint16_t*>(at.block_scales())[output] = from.scales[block];
  reinterpret_cast<uint16_t*>(at.block_minimums())[output] = from.minimums[block];
  const int64_t source = output * layout.num_groups + group;
  at.scales()[output] = static_cast<std::byte>(from.scale_factors[source]);
  if (layout.has_offsets) at.offsets()[output] = static_cast<std::byte>(from.minimum_factors[source]);
}

struct ScaleAndOffset {
  float scale = 0, offset = 0;
};

ScaleAndOffset LoadScaleAndOffset(const IntegerPanels& layout, const GroupCursor<const std::byte>& at, int output) {
  ScaleAndOffset of;
  if (!layout.blocks) {
    of.scale = LoadScale(layout.scale_dtype, at.scales(), output);
    if (layout.has_offsets) of.offset = LoadScale(DType::kF32, at.offsets(), output);
    return of;
  }
  const auto factor = [output](const std::byte* of_group) {
    return static_cast<float>(static_cast<int8_t>(of_group[output]));
  };
  of.scale = LoadScale(DType::kF16, at.block_scales(), output) * factor(at.scales());
  if (layout.has_offsets) {
    of.offset = static_cast<float>(layout.blocks->zero) * of.scale -
                LoadScale(DType::kF16, at.block_minimums(), output) * factor(at.offsets());
  }
  return of;
}

}  // namespace

void PackIntegers(const IntegerPanels& layout, const PanelIntegers& from, std::byte* panel) {
  const auto pack_group = layout.order == IntegerOrder::kQuads ? PackGroupOf<IntegerOrder::kQuads>(layout.bits)
                                                               : PackGroupOf<IntegerOrder::kPairs>(layout.bits);
  FT_CHECK(!layout.is_e2m1 || layout.group_size <= kMaxE2m1Group);
  for (int output = 0; output < kOutputs; ++output) {
    GroupCursor<std::byte> at(layout, panel, 0);
    for (int64_t group = 0; group < layout.num_groups; ++group, at.Next()) {
      const int64_t source = output * layout.num_groups + group;
      const uint8_t* codes = from.codes + source * layout.group_size;
      std::array<uint8_t, kMaxE2m1Group> of_e2m1;
      if (layout.is_e2m1) {
        std::transform(codes, codes + layout.group_size, of_e2m1.begin(),
                       [](uint8_t code) { return kE2m1Codes[code]; });
        codes = of_e2m1.data();
      }
      pack_group(codes, layout.group_size, output, at.codes());
      if (layout.blocks) {
        StoreFactors(*from.factors, layout, output, group, at);
        continue;
      }
      StoreScale(layout.scale_dtype, from.scales[source], at.scales(), output);
      if (layout.has_offsets) StoreScale(DType::kF32, from.offsets[source], at.offsets(), output);
    }
  }
}

void ReadValues(const IntegerPanels& layout, const std::byte* panel, int output, int64_t count, float* values) {
  const uint8_t flip = Flip(layout);
  GroupCursor<const std::byte> at(layout, panel, 0);
  for (int64_t begin = 0; begin < count; begin += layout.group_size, at.Next()) {
    const ScaleAndOffset of = LoadScaleAndOffset(layout, at, output);
    const auto bits_at = [&](const Place& place) {
      return static_cast<uint8_t>(at.codes()[place.byte]) >> place.shift;
    };
    for (int64_t input = 0; input < std::min(layout.group_size, count - begin); ++input) {
      int code = bits_at(PlaceOf(layout, output, input)) & (layout.bits == 8 ? 0xff : 15);
      if (layout.bits == 6) code |= (bits_at(UpperPlaceOf(layout, output, input)) & 3) << 4;
      if (layout.is_e2m1) code = kE2m1Levels[code];
      float& value = values[begin + input];
      value = of.scale * static_cast<float>((code ^ flip) - layout.center());
      if (layout.has_offsets) value += of.offset;
    }
  }
}

}  // namespace foretoken::kernels::cpu
