// SPDX-License-Identifier: Apache-2.0
// Vector helpers that several ops share. Highway compiles this file once per instruction set, so it has no #pragma
// once.
#if defined(FORETOKEN_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FORETOKEN_KERNELS_CPU_SIMD_INL_H_
#undef FORETOKEN_KERNELS_CPU_SIMD_INL_H_
#else
#define FORETOKEN_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A vector is at most one cache line, so that it divides every tile and block size in use.
using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
inline constexpr FloatTag kFloat;
inline HWY_ATTR size_t NumLanes() { return hn::Lanes(kFloat); }

// The first `count` lanes from memory, and zeros behind them. Reads nothing beyond them.
inline HWY_ATTR FloatVec LoadPrefix(const float* from, size_t count) {
  HWY_ALIGN float lanes[16] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = from[i];
  return hn::Load(kFloat, lanes);
}

inline HWY_ATTR void StorePrefix(FloatVec value, float* to, size_t count) {
  HWY_ALIGN float lanes[16];
  hn::Store(value, kFloat, lanes);
  for (size_t i = 0; i < count; ++i) to[i] = lanes[i];
}

inline HWY_ATTR FloatVec LoadBf16(const uint16_t* from) {
  const hn::Rebind<uint16_t, FloatTag> half_tag;
  const hn::Rebind<uint32_t, FloatTag> word_tag;
  return hn::BitCast(kFloat, hn::ShiftLeft<16>(hn::PromoteTo(word_tag, hn::LoadU(half_tag, from))));
}

// Rounds to nearest, ties to even; a NaN stays a quiet NaN: as Bf16FromFloat.
inline HWY_ATTR void StoreBf16(FloatVec value, uint16_t* to) {
  const hn::Rebind<uint16_t, FloatTag> half_tag;
  const hn::Rebind<uint32_t, FloatTag> word_tag;
  const auto bits = hn::BitCast(word_tag, value);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(word_tag, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(word_tag, 0x7fff))));
  const auto is_nan = hn::RebindMask(word_tag, hn::IsNaN(value));
  const auto quiet = hn::Or(high, hn::Set(word_tag, 0x40));
  hn::StoreU(hn::TruncateTo(half_tag, hn::IfThenElse(is_nan, quiet, rounded)), half_tag, to);
}

inline HWY_ATTR void StoreBf16Prefix(FloatVec value, uint16_t* to, size_t count) {
  HWY_ALIGN uint16_t lanes[16];
  StoreBf16(value, lanes);
  for (size_t i = 0; i < count; ++i) to[i] = lanes[i];
}

// 1 / sqrt(mean(x^2) + eps). The order of the sum is a function of `count` alone.
inline HWY_ATTR float MeanSquare(const float* x, size_t count) {
  const size_t lanes = NumLanes();
  FloatVec sum0 = hn::Zero(kFloat), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto x0 = hn::LoadU(kFloat, x + i), x1 = hn::LoadU(kFloat, x + i + lanes);
    const auto x2 = hn::LoadU(kFloat, x + i + 2 * lanes), x3 = hn::LoadU(kFloat, x + i + 3 * lanes);
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
    sum2 = hn::MulAdd(x2, x2, sum2);
    sum3 = hn::MulAdd(x3, x3, sum3);
  }
  for (; i < count; i += lanes) {
    const auto x0 = i + lanes <= count ? hn::LoadU(kFloat, x + i) : LoadPrefix(x + i, count - i);
    sum0 = hn::MulAdd(x0, x0, sum0);
  }
  const FloatVec sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  return hn::GetLane(hn::SumOfLanes(kFloat, sum)) / static_cast<float>(count);
}

inline float InverseRms(float mean_square, float eps) { return 1.0f / std::sqrt(mean_square + eps); }

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // FORETOKEN_KERNELS_CPU_SIMD_INL_H_
