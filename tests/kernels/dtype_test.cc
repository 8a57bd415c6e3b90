// SPDX-License-Identifier: Apache-2.0
// Conversions between element types. If this test fails, weights and activations are rounded wrongly, and a model emits
// worse tokens.
#include "kernels/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace foretoken::kernels {
namespace {

TEST(FloatFromF16, IsExactForEveryBitPattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
    const float value = FloatFromF16(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    if (exponent == 31) {
      ASSERT_TRUE(mantissa != 0 ? std::isnan(value) : std::isinf(value)) << bits;
    } else {
      const double expected = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      ASSERT_EQ(std::abs(value), expected) << bits;
    }
  }
}

TEST(Bf16FromFloat, RoundsToNearestTiesToEven) {
  for (uint32_t high = 0; high < 0x7f80; ++high) {
    const auto bits = static_cast<uint16_t>(high);
    const float low = FloatFromBf16(bits);
    ASSERT_EQ(Bf16FromFloat(low), bits);
    const uint16_t even = high % 2 == 0 ? bits : bits + 1;
    const float tie = std::bit_cast<float>(high << 16 | 0x8000);
    ASSERT_EQ(Bf16FromFloat(tie), even) << high;
    ASSERT_EQ(Bf16FromFloat(-tie), even | 0x8000) << high;
    ASSERT_EQ(Bf16FromFloat(std::nextafter(tie, 0.0f)), bits) << high;
    ASSERT_EQ(Bf16FromFloat(std::nextafter(tie, INFINITY)), bits + 1) << high;
  }
}

TEST(Bf16FromFloat, KeepsInfinitiesAndNaNs) {
  EXPECT_EQ(Bf16FromFloat(INFINITY), 0x7f80);
  EXPECT_EQ(Bf16FromFloat(-INFINITY), 0xff80);
  EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(NAN))));
  EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(std::bit_cast<float>(0x7f800001u)))));
}

TEST(FloatFromE4m3, IsExactForEveryFiniteCode) {
  for (int code = 0; code < 0x7f; ++code) {
    const int exponent = code / 8, mantissa = code % 8;
    const double expected = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    ASSERT_EQ(FloatFromE4m3(static_cast<uint8_t>(code)), expected) << code;
    ASSERT_EQ(FloatFromE4m3(static_cast<uint8_t>(code | 0x80)), -expected) << code;
  }
  EXPECT_EQ(FloatFromE4m3(0x7e), kMaxE4m3);
}

TEST(ShiftedE4m3Pair, HoldsEveryFiniteCodeInBothHalves) {
  for (uint32_t code = 0; code < 0x100; ++code) {
    if ((code & 0x7fu) == 0x7fu) continue;  // not a number
    const uint32_t other = 0x80u, pair = ShiftedE4m3Pair(code | other << 8),
                   swapped = ShiftedE4m3Pair(other | code << 8);
    const float value = FloatFromE4m3(static_cast<uint8_t>(code));
    for (const uint32_t half : {pair & 0xffffu, swapped >> 16}) {
      const float read = FloatFromF16(static_cast<uint16_t>(half));
      ASSERT_EQ(read * 256, value) << code;
      ASSERT_EQ(std::signbit(read), std::signbit(value)) << code;
    }
    ASSERT_EQ(pair >> 16, 0x8000u);
    ASSERT_EQ(swapped & 0xffffu, 0x8000u);
  }
}

TEST(E4m3FromFloat, RoundsToNearestTiesToEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    const float low = FloatFromE4m3(bits), tie = (low + FloatFromE4m3(bits + 1)) / 2;
    ASSERT_EQ(E4m3FromFloat(low), bits);
    const int even = code % 2 == 0 ? code : code + 1;
    ASSERT_EQ(E4m3FromFloat(tie), even) << code;
    ASSERT_EQ(E4m3FromFloat(-tie), even | 0x80) << code;
    ASSERT_EQ(E4m3FromFloat(std::nextafter(tie, 0.0f)), code) << code;
    ASSERT_EQ(E4m3FromFloat(std::nextafter(tie, INFINITY)), code + 1) << code;
  }
}

TEST(E4m3FromFloat, EndsAtTheLargest) {
  for (const float value : {448.0f, 449.0f, 480.0f, 1e30f, INFINITY}) {
    EXPECT_EQ(E4m3FromFloat(value), 0x7e) << value;
    EXPECT_EQ(E4m3FromFloat(-value), 0xfe) << value;
  }
}

TEST(F16, ComesBackFromItsFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    ASSERT_EQ(F16FromFloat(FloatFromF16(static_cast<uint16_t>(bits))), bits);
  }
}

}  // namespace
}  // namespace foretoken::kernels
