// SPDX-License-Identifier: Apache-2.0
// The keyed Gumbel noise of tokens, a vector at a time: see kernels/philox.h for words and counters. Highway compiles
// this file once per instruction set.
//
//   u = (word + 1/2) 2^-32, rounded once to f32, at most 1 - 2^-24
//   E = -log1p(-u), an exponential variable; g = -log(E), |error of g| <= 2^-21 + 4 units in the last place of g
#if defined(FORETOKEN_KERNELS_CPU_TOKEN_NOISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FORETOKEN_KERNELS_CPU_TOKEN_NOISE_INL_H_
#undef FORETOKEN_KERNELS_CPU_TOKEN_NOISE_INL_H_
#else
#define FORETOKEN_KERNELS_CPU_TOKEN_NOISE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"
#include "kernels/philox.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

inline constexpr size_t kNoiseChunk = 64;      // tokens per call of FillNoiseWords
inline constexpr float kLargestNoise = 22.9f;  // above g at u = 2^-33

struct NoiseStream {
  uint64_t key = 0;
  uint32_t t = 0;
  uint32_t sample_index = 0;
  NoisePurpose purpose = NoisePurpose::kTargetDraw;
};

// The Philox words of tokens [first_token, first_token + kNoiseChunk); first_token is a multiple of 4.
#if HWY_TARGET == HWY_SCALAR
inline void FillNoiseWords(const NoiseStream& stream, uint32_t first_token, uint32_t* words) {
  for (uint32_t token = 0; token < kNoiseChunk; token += 4) {
    const PhiloxBlock block = Philox4x32(
        stream.key, {(first_token + token) / 4, stream.t, stream.sample_index, static_cast<uint32_t>(stream.purpose)});
    std::copy(block.begin(), block.end(), words + token);
  }
}
#else
// A 64-bit lane is a counter: its four words are the low halves of four vectors, and the high halves never reach a
// product. So a round is two multiplications, two shifts and two exclusive ors.
inline HWY_ATTR void FillNoiseWords(const NoiseStream& stream, uint32_t first_token, uint32_t* words) {
  const hn::Repartition<uint64_t, FloatTag> d64;
  const hn::Repartition<uint32_t, FloatTag> d32;
  const auto low_half = hn::Set(d64, 0xffffffffull);
  const auto multiplier0 = hn::Set(d32, 0xD2511F53u), multiplier1 = hn::Set(d32, 0xCD9E8D57u);
  for (size_t i = 0; i < kNoiseChunk / 4; i += hn::Lanes(d64)) {
    auto c0 = hn::Iota(d64, first_token / 4 + i);
    auto c1 = hn::Set(d64, uint64_t{stream.t});
    auto c2 = hn::Set(d64, uint64_t{stream.sample_index});
    auto c3 = hn::Set(d64, static_cast<uint64_t>(stream.purpose));
    auto key0 = static_cast<uint32_t>(stream.key), key1 = static_cast<uint32_t>(stream.key >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto product0 = hn::MulEven(hn::BitCast(d32, c0), multiplier0);
      const auto product1 = hn::MulEven(hn::BitCast(d32, c2), multiplier1);
      c0 = hn::Xor3(hn::ShiftRight<32>(product1), c1, hn::Set(d64, uint64_t{key0}));
      c2 = hn::Xor3(hn::ShiftRight<32>(product0), c3, hn::Set(d64, uint64_t{key1}));
      c1 = product1;
      c3 = product0;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    const auto words01 = hn::Or(hn::And(c0, low_half), hn::ShiftLeft<32>(c1));
    const auto words23 = hn::Or(hn::And(c2, low_half), hn::ShiftLeft<32>(c3));
    hn::StoreInterleaved2(words01, words23, d64, reinterpret_cast<uint64_t*>(words + 4 * i));
  }
}
#endif

using WordVec = hn::Vec<hn::Rebind<uint32_t, FloatTag>>;

inline HWY_ATTR FloatVec GumbelOf(WordVec words) {
  const hn::Rebind<int32_t, FloatTag> int_tag;
  const hn::Rebind<uint32_t, FloatTag> word_tag;
  const FloatVec high = hn::ConvertTo(kFloat, hn::BitCast(int_tag, hn::ShiftRight<16>(words)));
  const FloatVec low = hn::ConvertTo(kFloat, hn::BitCast(int_tag, hn::And(words, hn::Set(word_tag, 0xffffu))));
  // high * 2^16 and low + 1/2 are exact, so their sum is rounded once.
  const FloatVec sum = hn::Add(hn::Mul(high, hn::Set(kFloat, 0x1p16f)), hn::Add(low, hn::Set(kFloat, 0.5f)));
  const FloatVec u = hn::Min(hn::Mul(sum, hn::Set(kFloat, 0x1p-32f)), hn::Set(kFloat, 1.0f - 0x1p-24f));
  const FloatVec exponential = hn::Neg(hn::Log1p(kFloat, hn::Neg(u)));
  return hn::Neg(hn::Log(kFloat, exponential));
}

// A bound of at least GumbelOf(words), for a few instructions: g <= -log(u), and log2 of a float is at least its bits
// read as a fixed-point number whose fraction is the mantissa. The 2^-12 covers every rounding on both sides.
inline HWY_ATTR FloatVec GumbelBound(WordVec words) {
  constexpr float kLn2 = 0.693147181f;
  const hn::Rebind<int32_t, FloatTag> int_tag;
  const FloatVec half = hn::ConvertTo(kFloat, hn::BitCast(int_tag, hn::ShiftRight<1>(words)));  // <= u 2^31
  const FloatVec bits = hn::ConvertTo(kFloat, hn::BitCast(int_tag, half));
  return hn::NegMulAdd(bits, hn::Set(kFloat, kLn2 * 0x1p-23f), hn::Set(kFloat, kLn2 * (127 + 31) + 0x1p-12f));
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // FORETOKEN_KERNELS_CPU_TOKEN_NOISE_INL_H_
