// SPDX-License-Identifier: Apache-2.0
// Element types of tensors, and scalar conversions between them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace foretoken::kernels {

enum class DType : uint8_t { kF32, kF16, kBF16, kI32 };

constexpr size_t SizeOf(DType dtype) { return dtype == DType::kF32 || dtype == DType::kI32 ? 4 : 2; }

constexpr const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI32:
      return "I32";
  }
  return "?";
}

constexpr float FloatFromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
constexpr uint16_t Bf16FromFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float FloatFromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: the mantissa counts units of 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// Of a value that an F16 holds.
constexpr uint16_t F16FromFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u, mantissa = bits & 0x7fffffu;
  const auto exponent = static_cast<int32_t>(bits >> 23 & 0xff) - 112;
  uint32_t magnitude = 0;
  if (exponent == 143) {  // an infinity or a NaN
    magnitude = 0x7c00u | mantissa >> 13;
  } else if (exponent > 0) {
    magnitude = static_cast<uint32_t>(exponent) << 10 | mantissa >> 13;
  } else if (exponent > -10) {  // subnormal
    magnitude = (0x800000u | mantissa) >> (14 - exponent);
  }
  return static_cast<uint16_t>(sign | magnitude);
}

// FP8 e4m3: four bits of exponent, three of mantissa, no infinities. Source: "OCP 8-bit Floating Point Specification".
inline constexpr float kMaxE4m3 = 448;

// Rounds to nearest, ties to even; values beyond kMaxE4m3 become kMaxE4m3. The value must not be a NaN.
constexpr uint8_t E4m3FromFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
  uint32_t code = 0;
  if (std::bit_cast<float>(magnitude) < 0x1p-6f) {  // subnormal: in units of 2^-9, the spacing of floats at 2^14
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - std::bit_cast<uint32_t>(0x1p14f);
  } else {
    code = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
  }
  return static_cast<uint8_t>(sign | (code < 0x7eu ? code : 0x7eu));
}

// Exact. The code must not be a NaN.
constexpr float FloatFromE4m3(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  return std::bit_cast<float>(sign | static_cast<uint32_t>(code & 0x7fu) << 20) * 0x1p120f;
}

// Puts two codes, the first in the low byte, into the two f16 halves of 32 bits. Each half then reads as 2^-8 of the
// code's value.
constexpr uint32_t ShiftedE4m3Pair(uint32_t codes) {
  const uint32_t halves = (codes & 0xffu) << 8 | (codes & 0xff00u) << 16;
  return (halves & 0x80008000u) | (halves >> 1 & 0x3f803f80u);
}

}  // namespace foretoken::kernels
