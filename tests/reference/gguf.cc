// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/gguf.h"

#include <cmath>

#include "kernels/check.h"

namespace foretoken::reference {
namespace {

float Half(const uint8_t* bytes) {
  const int bits = bytes[0] + 256 * bytes[1];
  const int exponent = bits / 1024 % 32, fraction = bits % 1024;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  FT_CHECK(exponent < 31);  // tests give finite scales
  return static_cast<float>(bits >= 32768 ? -magnitude : magnitude);
}

int Nibble(const uint8_t* bytes, int64_t i) { return i % 2 == 0 ? bytes[i / 2] % 16 : bytes[i / 2] / 16; }

// Of types with 32 values: 16 low nibbles first, then 16 high ones.
int SplitNibble(const uint8_t* bytes, int64_t i) {
  return i < 16 ? Nibble(bytes, 2 * i) : Nibble(bytes, 2 * (i - 16) + 1);
}

int Bit(const uint8_t* bytes, int64_t i) { return bytes[i / 8] >> (i % 8) & 1; }

// Six bits of group s: its scale, or its minimum.
int PackedScale(const uint8_t* b, int64_t s) { return s < 4 ? b[s] % 64 : b[s + 4] % 16 + b[s - 4] / 64 * 16; }
int PackedMinimum(const uint8_t* b, int64_t s) { return s < 4 ? b[s + 4] % 64 : b[s + 4] / 16 + b[s] / 64 * 16; }

// Of Q4_K and Q5_K: 32 bytes hold two groups of 32 values.
int GroupNibble(const uint8_t* bytes, int64_t i) {
  const int64_t group = i / 32;
  return Nibble(bytes + group / 2 * 32, 2 * (i % 32) + group % 2);
}

float K(const uint8_t* block, int64_t i, int integer) {
  const float scale = Half(block) * static_cast<float>(PackedScale(block + 4, i / 32));
  const float minimum = Half(block + 2) * static_cast<float>(PackedMinimum(block + 4, i / 32));
  const float product = scale * static_cast<float>(integer);
  return product - minimum;
}

float Q6K(const uint8_t* block, int64_t i) {
  const int64_t half = i / 128, in_half = i % 128, l = in_half % 32, quarter = in_half / 32;
  const uint8_t *ql = block + half * 64, *qh = block + 128 + half * 32;
  const int low = quarter == 0   ? ql[l] % 16
                  : quarter == 1 ? ql[32 + l] % 16
                  : quarter == 2 ? ql[l] / 16
                                 : ql[32 + l] / 16;
  const int high = qh[l] / (1 << (2 * quarter)) % 4;
  const auto scale = static_cast<int8_t>(block[192 + half * 8 + in_half / 16]);
  return Half(block + 208) * static_cast<float>(scale) * static_cast<float>(low + 16 * high - 32);
}

float Mxfp4(const uint8_t* block, int64_t i) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const int code = SplitNibble(block + 1, i);
  const double magnitude = std::ldexp(kMagnitudes[code % 8], block[0] - 127);
  return static_cast<float>(code >= 8 && magnitude != 0 ? -magnitude : magnitude);
}

}  // namespace

const std::vector<GgufType>& GgufTypes() {
  static const std::vector<GgufType> types = {{"Q4_0", 2, 32, 18},    {"Q4_1", 3, 32, 20},    {"Q5_0", 6, 32, 22},
                                              {"Q5_1", 7, 32, 24},    {"Q8_0", 8, 32, 34},    {"Q4_K", 12, 256, 144},
                                              {"Q5_K", 13, 256, 176}, {"Q6_K", 14, 256, 210}, {"IQ4_NL", 20, 32, 18},
                                              {"MXFP4", 39, 32, 17}};
  return types;
}

float GgufValue(const std::string& type, const uint8_t* block, int64_t i) {
  if (type == "Q8_0") return Half(block) * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  if (type == "Q4_0") return Half(block) * static_cast<float>(SplitNibble(block + 2, i) - 8);
  if (type == "Q5_0") {
    return Half(block) * static_cast<float>(SplitNibble(block + 6, i) + 16 * Bit(block + 2, i) - 16);
  }
  if (type == "Q4_1") {
    const float product = Half(block) * static_cast<float>(SplitNibble(block + 4, i));
    return product + Half(block + 2);
  }
  if (type == "Q5_1") {
    const float product = Half(block) * static_cast<float>(SplitNibble(block + 8, i) + 16 * Bit(block + 4, i));
    return product + Half(block + 2);
  }
  if (type == "Q4_K") return K(block, i, GroupNibble(block + 16, i));
  if (type == "Q5_K") return K(block, i, GroupNibble(block + 48, i) + 16 * (block[16 + i % 32] >> (i / 32) & 1));
  if (type == "Q6_K") return Q6K(block, i);
  if (type == "IQ4_NL") {
    constexpr int kTable[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return Half(block) * static_cast<float>(kTable[SplitNibble(block + 2, i)]);
  }
  FT_CHECK(type == "MXFP4");
  return Mxfp4(block, i);
}

}  // namespace foretoken::reference
