// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/gguf_blocks.h"

#include <bit>
#include <cstring>

namespace foretoken::quantization {
namespace {

using kernels::DType;

constexpr int64_t kHalf = 16;  // bytes of 32 nibbles: value j is a low half, and value j + 16 a high one

uint32_t Load32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

uint16_t Load16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

float LoadF16(const uint8_t* bytes) { return kernels::FloatFromF16(Load16(bytes)); }

void DecodeQ8(const uint8_t* bytes, GroupedBlock& block) {
  block.scales[0] = LoadF16(bytes);
  std::memcpy(block.integers.data(), bytes + 2, 32);
}

// Writes 32 nibbles.
void ReadNibbles(const uint8_t* nibbles, int lowest, int8_t* integers) {
  for (int64_t j = 0; j < kHalf; ++j) {
    integers[j] = static_cast<int8_t>((nibbles[j] & 15) + lowest);
    integers[j + kHalf] = static_cast<int8_t>((nibbles[j] >> 4) + lowest);
  }
}

void DecodeQ4_0(const uint8_t* bytes, GroupedBlock& block) {
  block.scales[0] = LoadF16(bytes);
  ReadNibbles(bytes + 2, -8, block.integers.data());
}

void DecodeQ4_1(const uint8_t* bytes, GroupedBlock& block) {
  block.scales[0] = LoadF16(bytes);
  block.minimums[0] = LoadF16(bytes + 2);
  ReadNibbles(bytes + 4, 0, block.integers.data());
}

// Adds the fifth bits: bit j is that of value j.
void AddFifthBits(uint32_t bits, int8_t* integers) {
  for (int j = 0; j < 32; ++j) integers[j] = static_cast<int8_t>(integers[j] + (bits >> j & 1) * 16);
}

void DecodeQ5_0(const uint8_t* bytes, GroupedBlock& block) {
  block.scales[0] = LoadF16(bytes);
  ReadNibbles(bytes + 6, -16, block.integers.data());
  AddFifthBits(Load32(bytes + 2), block.integers.data());
}

void DecodeQ5_1(const uint8_t* bytes, GroupedBlock& block) {
  block.scales[0] = LoadF16(bytes);
  block.minimums[0] = LoadF16(bytes + 2);
  ReadNibbles(bytes + 8, 0, block.integers.data());
  AddFifthBits(Load32(bytes + 4), block.integers.data());
}

void ReadFromTable(const uint8_t* nibbles, const std::array<int8_t, 16>& table, int8_t* integers) {
  for (int64_t j = 0; j < kHalf; ++j) {
    integers[j] = table[nibbles[j] & 15];
    integers[j + kHalf] = table[nibbles[j] >> 4];
  }
}

void DecodeIq4Nl(const uint8_t* bytes, GroupedBlock& block) {
  static constexpr std::array<int8_t, 16> kTable = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                    1,    13,   25,  38,  53,  69,  89,  113};
  block.scales[0] = LoadF16(bytes);
  ReadFromTable(bytes + 2, kTable, block.integers.data());
}

// The table holds twice the values of E2M1, so the scale is half of the exponent's power of two.
void DecodeMxfp4(const uint8_t* bytes, GroupedBlock& block) {
  static constexpr std::array<int8_t, 16> kTable = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint32_t exponent = bytes[0];
  block.scales[0] = std::bit_cast<float>(exponent < 2 ? uint32_t{0x00200000} << exponent : (exponent - 1) << 23);
  ReadFromTable(bytes + 1, kTable, block.integers.data());
}

// Of Q4_K and Q5_K: 8 of each, with 6 bits, in 12 bytes behind two F16.
BlockFactors PackedFactors(const uint8_t* bytes) {
  BlockFactors factors = {.scale = Load16(bytes), .minimum = Load16(bytes + 2)};
  const uint8_t* packed = bytes + 4;
  for (int s = 0; s < 8; ++s) {
    const int scale = s < 4 ? packed[s] & 63 : (packed[s + 4] & 15) | (packed[s - 4] >> 6) << 4;
    const int minimum = s < 4 ? packed[s + 4] & 63 : packed[s + 4] >> 4 | (packed[s] >> 6) << 4;
    factors.scale_factors[s] = static_cast<int8_t>(scale);
    factors.minimum_factors[s] = static_cast<int8_t>(minimum);
  }
  return factors;
}

BlockFactors FactorsQ6K(const uint8_t* bytes) {
  BlockFactors factors = {.scale = Load16(bytes + 208)};
  std::memcpy(factors.scale_factors.data(), bytes + 192, 16);
  return factors;
}

void Multiply(const BlockFactors& factors, int num_groups, GroupedBlock& block) {
  const float scale = kernels::FloatFromF16(factors.scale), minimum = kernels::FloatFromF16(factors.minimum);
  for (int s = 0; s < num_groups; ++s) {
    block.scales[s] = scale * static_cast<float>(factors.scale_factors[s]);
    block.minimums[s] = -(minimum * static_cast<float>(factors.minimum_factors[s]));
  }
}

// 32 bytes hold two groups: one in their low halves, and the next in their high halves.
void ReadPairsOfGroups(const uint8_t* nibbles, GroupedBlock& block) {
  for (int i = 0; i < 256; ++i) {
    const uint8_t byte = nibbles[i / 64 * 32 + i % 32];
    block.integers[i] = static_cast<int8_t>(i / 32 % 2 == 0 ? byte & 15 : byte >> 4);
  }
}

void DecodeQ4K(const uint8_t* bytes, GroupedBlock& block) {
  Multiply(PackedFactors(bytes), 8, block);
  ReadPairsOfGroups(bytes + 16, block);
}

// Bit s of a high byte belongs to group s.
void DecodeQ5K(const uint8_t* bytes, GroupedBlock& block) {
  Multiply(PackedFactors(bytes), 8, block);
  ReadPairsOfGroups(bytes + 48, block);
  const uint8_t* high = bytes + 16;
  for (int i = 0; i < 256; ++i) {
    block.integers[i] = static_cast<int8_t>(block.integers[i] + (high[i % 32] >> (i / 32) & 1) * 16);
  }
}

// Two halves of 128 values. In a half the quarters 0 and 1 lie in the low nibbles, and 2 and 3 in the high ones; two
// bits for each quarter come from the high byte.
void DecodeQ6K(const uint8_t* bytes, GroupedBlock& block) {
  Multiply(FactorsQ6K(bytes), 16, block);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const uint8_t low = bytes[half * 64 + quarter % 2 * 32 + l];
    const int high = bytes[128 + half * 32 + l] >> (2 * quarter) & 3;
    block.integers[i] = static_cast<int8_t>(((quarter < 2 ? low & 15 : low >> 4) | high << 4) - 32);
  }
}

constexpr BlockFormat kFormats[] = {
    {"Q8_0", 32, 34, 32, 8, -128, false, DType::kF16, DecodeQ8},
    {"Q4_0", 32, 18, 32, 4, -8, false, DType::kF16, DecodeQ4_0},
    {"Q4_1", 32, 20, 32, 4, 0, true, DType::kF16, DecodeQ4_1},
    {"Q5_0", 32, 22, 32, 6, -32, false, DType::kF16, DecodeQ5_0},
    {"Q5_1", 32, 24, 32, 6, -32, true, DType::kF16, DecodeQ5_1},
    {"Q4_K", 256, 144, 32, 4, 0, true, DType::kF32, DecodeQ4K, PackedFactors},
    {"Q5_K", 256, 176, 32, 6, -32, true, DType::kF32, DecodeQ5K, PackedFactors},
    {"Q6_K", 256, 210, 16, 6, -32, false, DType::kF32, DecodeQ6K, FactorsQ6K},
    {"IQ4_NL", 32, 18, 32, 8, -128, false, DType::kF16, DecodeIq4Nl},
    {"MXFP4", 32, 17, 32, 6, -32, false, DType::kBF16, DecodeMxfp4, nullptr, true},
};

}  // namespace

const BlockFormat* FindBlockFormat(absl::string_view type) {
  for (const BlockFormat& format : kFormats) {
    if (format.name == type) return &format;
  }
  return nullptr;
}

}  // namespace foretoken::quantization
