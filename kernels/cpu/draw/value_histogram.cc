// SPDX-License-Identifier: Apache-2.0
// Vectors find the bins and scalars count, 64 tokens at a time. Neighbours count in different copies of a bin. Rows
// have many equal values, and in one copy each would wait for the previous addition.
#include "kernels/cpu/draw/value_histogram.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/draw/logits_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/draw/value_histogram.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"

#ifndef FORETOKEN_KERNELS_CPU_VALUE_HISTOGRAM_CC_
#define FORETOKEN_KERNELS_CPU_VALUE_HISTOGRAM_CC_
namespace foretoken::kernels::cpu {

inline constexpr size_t kNumCopies = 4;
using BinCopies = std::array<std::array<uint32_t, kNumCopies>, kNumBins>;

}  // namespace foretoken::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

void CountInCopies(std::span<const float> values, float low, float scale, BinCopies& copies) {
  constexpr size_t kAtATime = 64;
  const hn::Rebind<int32_t, FloatTag> int_tag;
  HWY_ALIGN float buffer[kLogitsBlock];
  HWY_ALIGN int32_t bins[kAtATime];
  const FloatVec lows = hn::Set(kFloat, low), scales = hn::Set(kFloat, scale), half = hn::Set(kFloat, 0.5f);
  const FloatVec first = hn::Zero(kFloat), last = hn::Set(kFloat, static_cast<float>(kNumBins - 1));
  for (size_t begin = 0; begin < values.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(values, begin, buffer);
    for (size_t part = 0; part < kLogitsBlock; part += kAtATime) {
      for (size_t i = 0; i < kAtATime; i += NumLanes()) {
        const FloatVec place = hn::MulAdd(hn::Sub(hn::LoadU(kFloat, x + part + i), lows), scales, half);
        hn::Store(hn::ConvertTo(int_tag, hn::Min(hn::Max(place, first), last)), int_tag, bins + i);
      }
#pragma GCC unroll 16
      for (size_t i = 0; i < kAtATime; ++i) ++copies[bins[i]][i % kNumCopies];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(CountInCopies);

void ValueHistogram::KeepTop(size_t count) {
  for (size_t bin = kNumBins; bin-- > 0;) {
    counts[bin] = static_cast<uint32_t>(std::min<size_t>(counts[bin], count));
    count -= counts[bin];
  }
}

ValueHistogram CountValues(std::span<const float> values, float low, float max) {
  using Limits = std::numeric_limits<float>;
  ValueHistogram histogram{.low = low, .width = std::clamp((max - low) / (kNumBins - 1), Limits::min(), Limits::max())};
  BinCopies copies = {};
  HWY_DYNAMIC_DISPATCH(CountInCopies)(values, low, 1 / histogram.width, copies);
  for (size_t bin = 0; bin < kNumBins; ++bin) {
    for (const uint32_t count : copies[bin]) histogram.counts[bin] += count;
  }
  const size_t num_filled_up = (kLogitsBlock - values.size() % kLogitsBlock) % kLogitsBlock;  // see BlockOf
  histogram.counts[0] -= static_cast<uint32_t>(num_filled_up);
  return histogram;
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
