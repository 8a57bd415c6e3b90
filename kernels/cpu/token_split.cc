// SPDX-License-Identifier: Apache-2.0
// Sums are f32 within a block and double over blocks, lane by lane: their order depends on nothing but the tokens.
#include "kernels/cpu/token_split.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/logits_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/token_split.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

using IntTag = hn::Rebind<int32_t, FloatTag>;
inline constexpr IntTag kInt;

double WeighRow(std::span<const float> row, const Softmax& softmax, const RankedToken& last, float* weights) {
  const FloatVec maxes = hn::Set(kFloat, softmax.max), scale = hn::Set(kFloat, 1.0f / softmax.temperature);
  const FloatVec last_value = hn::Set(kFloat, last.value);
  const auto last_id = hn::Set(kInt, last.id);
  HWY_ALIGN float buffer[kLogitsBlock];
  HWY_ALIGN float last_weights[kLogitsBlock];
  double total = 0;
  for (size_t begin = 0; begin < row.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(row, begin, buffer);
    const bool is_whole = x != buffer;
    float* to = is_whole ? weights + begin : last_weights;
    FloatVec sum = hn::Zero(kFloat);
    for (size_t i = 0; i < kLogitsBlock; i += NumLanes()) {
      const FloatVec value = hn::LoadU(kFloat, x + i);
      const auto ids = hn::Iota(kInt, static_cast<int32_t>(begin + i));
      const auto is_behind = hn::RebindMask(kFloat, hn::Gt(ids, last_id));
      const auto is_out = hn::Or(hn::Lt(value, last_value), hn::And(hn::Eq(value, last_value), is_behind));
      const FloatVec weight = hn::Exp(kFloat, hn::Mul(hn::Sub(value, maxes), scale));
      const FloatVec kept = hn::IfThenZeroElse(is_out, weight);
      hn::StoreU(kept, kFloat, to + i);
      sum = hn::Add(sum, kept);
    }
    if (!is_whole) std::copy_n(last_weights, row.size() - begin, weights + begin);
    total += hn::GetLane(hn::SumOfLanes(kFloat, sum));
  }
  return total;
}

template <bool kHasWeights>
HWY_ATTR SplitSums SplitTokens(const TokenView& tokens, const ValueRange& range, TokenBuffer& to) {
  const FloatVec low = hn::Set(kFloat, range.low), high = hn::Set(kFloat, range.high);
  HWY_ALIGN float buffer[kLogitsBlock];
  HWY_ALIGN float weight_buffer[kLogitsBlock];
  SplitSums sums;
  size_t count = 0;
  for (size_t begin = 0; begin < tokens.values.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(tokens.values, begin, buffer);
    // Weights behind the end are -inf, and never read: their values are below every range.
    const float* w = kHasWeights ? BlockOf(tokens.weights, begin, weight_buffer) : nullptr;
    FloatVec above = hn::Zero(kFloat), inside = above;
    size_t num_above = 0;
    for (size_t i = 0; i < kLogitsBlock; i += NumLanes()) {
      const FloatVec value = hn::LoadU(kFloat, x + i);
      const auto is_above = hn::Gt(value, high);
      const auto is_inside = hn::AndNot(is_above, hn::Ge(value, low));
      if constexpr (kHasWeights) {
        above = hn::Add(above, hn::IfThenElseZero(is_above, hn::LoadU(kFloat, w + i)));
      } else {
        num_above += hn::CountTrue(kFloat, is_above);
      }
      if (hn::AllFalse(kFloat, is_inside)) continue;
      const auto places = hn::Iota(kInt, static_cast<int32_t>(begin + i));
      hn::StoreU(hn::Compress(value, is_inside), kFloat, to.values.data() + count);
      hn::StoreU(hn::Compress(places, hn::RebindMask(kInt, is_inside)), kInt, to.ids.data() + count);
      if constexpr (kHasWeights) {
        const FloatVec weight = hn::LoadU(kFloat, w + i);
        inside = hn::Add(inside, hn::IfThenElseZero(is_inside, weight));
        hn::StoreU(hn::Compress(weight, is_inside), kFloat, to.weights.data() + count);
      }
      count += hn::CountTrue(kFloat, is_inside);
    }
    sums.above += kHasWeights ? hn::GetLane(hn::SumOfLanes(kFloat, above)) : static_cast<double>(num_above);
    sums.inside += hn::GetLane(hn::SumOfLanes(kFloat, inside));
  }
  to.count = count;
  if (!kHasWeights) sums.inside = static_cast<double>(count);
  return sums;
}

SplitSums SplitWeighed(const TokenView& tokens, const ValueRange& range, TokenBuffer& to) {
  return SplitTokens<true>(tokens, range, to);
}

SplitSums SplitCounted(const TokenView& tokens, const ValueRange& range, TokenBuffer& to) {
  return SplitTokens<false>(tokens, range, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(WeighRow);
HWY_EXPORT(SplitWeighed);
HWY_EXPORT(SplitCounted);

void TokenBuffer::Reserve(size_t num_tokens) {
  constexpr size_t kLargestVector = 16;  // stored whole behind the last token
  if (values.size() >= num_tokens + kLargestVector) return;
  values.resize(num_tokens + kLargestVector);
  ids.resize(values.size());
  weights.resize(values.size());
}

TokenView TokenBuffer::view() const {
  return {{values.data(), count}, {ids.data(), count}, {weights.data(), has_weights ? count : 0}};
}

double Weigh(std::span<const float> row, const Softmax& softmax, const RankedToken& last, std::span<float> weights) {
  return HWY_DYNAMIC_DISPATCH(WeighRow)(row, softmax, last, weights.data());
}

SplitSums Split(const TokenView& tokens, const ValueRange& range, TokenBuffer& inside) {
  const ValueRange finite = {std::max(range.low, std::numeric_limits<float>::lowest()), range.high};
  inside.Reserve(tokens.values.size());
  inside.has_weights = !tokens.weights.empty();
  const SplitSums sums = inside.has_weights ? HWY_DYNAMIC_DISPATCH(SplitWeighed)(tokens, finite, inside)
                                            : HWY_DYNAMIC_DISPATCH(SplitCounted)(tokens, finite, inside);
  if (!tokens.ids.empty()) {
    for (size_t i = 0; i < inside.count; ++i) inside.ids[i] = tokens.ids[inside.ids[i]];
  }
  return sums;
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
