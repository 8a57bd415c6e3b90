// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/dtype.h"

namespace foretoken::kernels {
namespace {

// Groups with a smaller scale become zeros: the scale's reciprocal may not be finite.
constexpr float kSmallest = std::numeric_limits<float>::min();

float MaxMagnitude(const float* values, int64_t count) {
  float max = 0;
  for (int64_t i = 0; i < count; ++i) max = std::max(max, std::fabs(values[i]));
  return max;
}

// To nearest, ties to even, for magnitudes below 2^22: the sum's spacing is 1. Compilers vectorise it everywhere.
float Round(float value) {
  constexpr float kSpacing = 0x1.8p23f;
  return (value + kSpacing) - kSpacing;
}

// A NaN becomes `low`.
float Clamped(float value, float low, float high) { return std::min(high, std::max(low, value)); }

}  // namespace

float QuantizeGroup(const float* values, int64_t count, int bits, uint8_t* codes) {
  const float center = bits == 8 ? 128 : 8;
  const float scale = FloatFromBf16(Bf16FromFloat(MaxMagnitude(values, count) / (center - 0.5f)));
  if (!(scale >= kSmallest)) {
    std::fill_n(codes, count, static_cast<uint8_t>(center));
    return 0;
  }
  const float inverse = 1 / scale;
  for (int64_t i = 0; i < count; ++i) {
    const float integer = Clamped(Round(values[i] * inverse), -center, center - 1);
    codes[i] = static_cast<uint8_t>(static_cast<int32_t>(integer + center));
  }
  return scale;
}

float QuantizeRowGroup(const float* values, int64_t count, int8_t* integers) {
  const float max = MaxMagnitude(values, count);
  const float scale = max / 127;
  if (!(scale >= kSmallest)) {
    std::fill_n(integers, count, int8_t{0});
    return 0;
  }
  const float inverse = 127 / max;
  for (int64_t i = 0; i < count; ++i) {
    const float integer = Clamped(Round(values[i] * inverse), -127, 127);
    integers[i] = static_cast<int8_t>(static_cast<int32_t>(integer));
  }
  return scale;
}

float QuantizeKv(KvCacheDtype dtype, const float* values, int64_t count, uint8_t* codes) {
  float zero = 0;  // NaN if a value is not finite
  for (int64_t i = 0; i < count; ++i) zero += values[i] * 0.0f;
  if (std::isnan(zero)) {
    std::fill_n(codes, count, uint8_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  if (dtype == KvCacheDtype::kInt8) return QuantizeRowGroup(values, count, reinterpret_cast<int8_t*>(codes));
  const float max = MaxMagnitude(values, count);
  const float scale = max / kMaxE4m3;
  if (!(scale >= kSmallest)) {
    std::fill_n(codes, count, uint8_t{0});
    return 0;
  }
  const float inverse = kMaxE4m3 / max;
  for (int64_t i = 0; i < count; ++i) codes[i] = E4m3FromFloat(values[i] * inverse);
  return scale;
}

}  // namespace foretoken::kernels
