// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/draw/logits_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/draw/logits_row.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

// x < infinity: neither NaN nor +inf.
HWY_ATTR bool IsFinite(const float* block) {
  const FloatVec infinity = hn::Set(kFloat, std::numeric_limits<float>::infinity());
  auto finite = hn::Lt(hn::Zero(kFloat), infinity);
  for (size_t i = 0; i < kLogitsBlock; i += NumLanes()) {
    finite = hn::And(finite, hn::Lt(hn::LoadU(kFloat, block + i), infinity));
  }
  return hn::AllTrue(kFloat, finite);
}

// One pass of two additions and maxima, as fast as memory delivers the row. A NaN or +inf makes its block's sum NaN or
// infinite. A sum that overflows, or adds +inf and -inf on the way, only causes another look at the block. Every block
// has its maximum. The first block that has the row's maximum is searched for the id.
RowMax FindRowMax(std::span<const float> row) {
  HWY_ALIGN float buffer[kLogitsBlock];
  const size_t lanes = NumLanes();
  RowMax best;
  size_t best_begin = 0;
  for (size_t begin = 0; begin < row.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(row, begin, buffer);
    FloatVec max0 = hn::Set(kFloat, kImpossible), max1 = max0;
    FloatVec sum0 = hn::Zero(kFloat), sum1 = sum0;
    for (size_t i = 0; i < kLogitsBlock; i += 2 * lanes) {
      const FloatVec x0 = hn::LoadU(kFloat, x + i);
      const FloatVec x1 = hn::LoadU(kFloat, x + i + lanes);
      max0 = hn::Max(max0, x0);
      max1 = hn::Max(max1, x1);
      sum0 = hn::Add(sum0, x0);
      sum1 = hn::Add(sum1, x1);
    }
    const auto looks_finite = hn::Lt(hn::Add(sum0, sum1), hn::Set(kFloat, std::numeric_limits<float>::infinity()));
    if (HWY_UNLIKELY(!hn::AllTrue(kFloat, looks_finite)) && !IsFinite(x)) return {.is_finite = false};
    const float max = hn::GetLane(hn::MaxOfLanes(kFloat, hn::Max(max0, max1)));
    if (max > best.max) {
      best.max = max;
      best_begin = begin;
    }
  }
  const auto found = std::find(row.begin() + best_begin, row.end(), best.max);
  best.id = static_cast<int32_t>(found - row.begin());
  return best;
}

// The sum is f32 within a block and double over blocks.
double SumRowExps(std::span<const float> row, float max, float inverse_temperature) {
  HWY_ALIGN float buffer[kLogitsBlock];
  const size_t lanes = NumLanes();
  const FloatVec maxes = hn::Set(kFloat, max), scale = hn::Set(kFloat, inverse_temperature);
  double sum = 0;
  for (size_t begin = 0; begin < row.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(row, begin, buffer);
    FloatVec block_sum = hn::Zero(kFloat);
    for (size_t i = 0; i < kLogitsBlock; i += lanes) {
      const FloatVec scaled = hn::Mul(hn::Sub(hn::LoadU(kFloat, x + i), maxes), scale);
      block_sum = hn::Add(block_sum, hn::Exp(kFloat, scaled));
    }
    sum += hn::GetLane(hn::SumOfLanes(kFloat, block_sum));
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(FindRowMax);
HWY_EXPORT(SumRowExps);

RowMax FindMax(std::span<const float> row) { return HWY_DYNAMIC_DISPATCH(FindRowMax)(row); }

double SumOfExps(std::span<const float> row, float max, float inverse_temperature) {
  return HWY_DYNAMIC_DISPATCH(SumRowExps)(row, max, inverse_temperature);
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
