// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/dtype.h"

namespace foretoken::kernels {
namespace {

uint32_t MaxBits(const float* values, int64_t count) {
  uint32_t max = 0;
  for (int64_t i = 0; i < count; ++i) max = std::max(max, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  return max;
}

// NaN if a value is not finite.
float MaxMagnitude(const float* values, int64_t count) {
  const float magnitude = std::bit_cast<float>(MaxBits(values, count));
  return std::isfinite(magnitude) ? magnitude : std::numeric_limits<float>::quiet_NaN();
}

// To nearest, ties to even, for magnitudes below 2^22: the sum's spacing is 1. Compilers vectorise it everywhere.
float Round(float value) {
  constexpr float kSpacing = 0x1.8p23f;
  return (value + kSpacing) - kSpacing;
}

float Clamped(float value, float low, float high) { return std::min(high, std::max(low, value)); }

}  // namespace

float QuantizeGroup(const float* values, int64_t count, int bits, uint8_t* codes) {
  const float center = bits == 8 ? 128 : 8;
  const float scale = FloatFromBf16(Bf16FromFloat(MaxMagnitude(values, count) / (center - 0.5f)));
  if (!(scale >= kLeastScale)) {
    std::fill_n(codes, count, static_cast<uint8_t>(center));
    return std::isnan(scale) ? scale : 0;
  }
  const float inverse = 1 / scale;
  for (int64_t i = 0; i < count; ++i) {
    const float integer = Clamped(Round(values[i] * inverse), -center, center - 1);
    codes[i] = static_cast<uint8_t>(static_cast<int32_t>(integer + center));
  }
  return scale;
}

float QuantizeRowGroup(const float* values, int64_t count, int8_t* integers) {
  const auto [scale, inverse] = RoundingTo(kMaxInt8, MaxBits(values, count));
  if (!(scale > 0)) {
    std::fill_n(integers, count, int8_t{0});
    return scale;
  }
  for (int64_t i = 0; i < count; ++i) {
    const float integer = Clamped(Round(values[i] * inverse), -kMaxInt8, kMaxInt8);
    integers[i] = static_cast<int8_t>(static_cast<int32_t>(integer));
  }
  return scale;
}

float QuantizeKv(KvCacheDtype dtype, const float* values, int64_t count, uint8_t* codes) {
  if (dtype == KvCacheDtype::kInt8) return QuantizeRowGroup(values, count, reinterpret_cast<int8_t*>(codes));
  const auto [scale, inverse] = RoundingTo(kMaxE4m3, MaxBits(values, count));
  if (!(scale > 0)) {
    std::fill_n(codes, count, uint8_t{0});
    return scale;
  }
  for (int64_t i = 0; i < count; ++i) codes[i] = E4m3FromFloat(values[i] * inverse);
  return scale;
}

}  // namespace foretoken::kernels
