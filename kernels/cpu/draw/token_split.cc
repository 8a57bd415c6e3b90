// SPDX-License-Identifier: Apache-2.0
// Sums are f32 within a block and double over blocks, lane by lane, so their order depends on the tokens alone.
#include "kernels/cpu/draw/token_split.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/draw/logits_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/draw/token_split.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

using IntTag = hn::Rebind<int32_t, FloatTag>;
inline constexpr IntTag kInt;
using IntVec = hn::Vec<IntTag>;

struct CountEach {
  HWY_ATTR FloatVec operator()(FloatVec x) const {
    return hn::IfThenElseZero(hn::Gt(x, hn::Set(kFloat, kImpossible)), hn::Set(kFloat, 1.0f));
  }
};

struct Exp {
  float max;
  float scale;
  HWY_ATTR FloatVec operator()(FloatVec x) const {
    return hn::Exp(kFloat, hn::Mul(hn::Sub(x, hn::Set(kFloat, max)), hn::Set(kFloat, scale)));
  }
};

HWY_ATTR double SumOf(FloatVec lanes) { return hn::GetLane(hn::SumOfLanes(kFloat, lanes)); }

// The row's tokens up to `last`; tokens behind it weigh nothing.
struct UpTo {
  OrderedToken last;
  HWY_ATTR FloatVec operator()(FloatVec x, IntVec ids) const {
    const FloatVec last_value = hn::Set(kFloat, last.value);
    const auto is_after = hn::RebindMask(kFloat, hn::Gt(ids, hn::Set(kInt, last.id)));
    const auto is_behind = hn::Or(hn::Lt(x, last_value), hn::And(hn::Eq(x, last_value), is_after));
    return hn::IfThenElse(is_behind, hn::Set(kFloat, kImpossible), x);
  }
};

struct All {
  HWY_ATTR FloatVec operator()(FloatVec x, IntVec) const { return x; }
};

// `mask` returns the values, with -inf for tokens that count as absent.
template <typename Mask, typename WeightOf>
HWY_ATTR SplitSums SplitTokens(const SplitArgs& args, const Mask& mask, const WeightOf& weight_of, TokenBuffer& to) {
  const std::span<const float> values = args.tokens.values;
  const FloatVec low = hn::Set(kFloat, args.range.low), high = hn::Set(kFloat, args.range.high);
  HWY_ALIGN float buffer[kLogitsBlock];
  SplitSums sums;
  size_t count = 0;
  for (size_t begin = 0; begin < values.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(values, begin, buffer);
    FloatVec above = hn::Zero(kFloat), inside = above, all = above;
    for (size_t i = 0; i < kLogitsBlock; i += NumLanes()) {
      const IntVec places = hn::Iota(kInt, static_cast<int32_t>(begin + i));
      const FloatVec value = mask(hn::LoadU(kFloat, x + i), places);
      const FloatVec weight = weight_of(value);
      const auto is_above = hn::Gt(value, high);
      const auto is_inside = hn::AndNot(is_above, hn::Ge(value, low));
      all = hn::Add(all, weight);
      above = hn::Add(above, hn::IfThenElseZero(is_above, weight));
      if (hn::AllFalse(kFloat, is_inside)) continue;
      inside = hn::Add(inside, hn::IfThenElseZero(is_inside, weight));
      hn::StoreU(hn::Compress(value, is_inside), kFloat, to.values.data() + count);
      hn::StoreU(hn::Compress(places, hn::RebindMask(kInt, is_inside)), kInt, to.ids.data() + count);
      count += hn::CountTrue(kFloat, is_inside);
    }
    const SplitSums block{.above = SumOf(above), .inside = SumOf(inside)};
    sums.above += block.above;
    sums.inside += block.inside;
    sums.below += SumOf(all) - block.above - block.inside;
  }
  to.count = count;
  return sums;
}

SplitSums SplitInto(const SplitArgs& args, TokenBuffer& to) {
  if (!args.weighing.has_value()) return SplitTokens(args, All{}, CountEach{}, to);
  const Exp exp{args.weighing->max, 1.0f / args.weighing->temperature};
  return args.last < kNoneBehind ? SplitTokens(args, UpTo{args.last}, exp, to) : SplitTokens(args, All{}, exp, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(SplitInto);

void TokenBuffer::Reserve(size_t num_tokens) {
  constexpr size_t kLargestVector = 16;  // a vector is stored whole behind the last token
  if (values.size() >= num_tokens + kLargestVector) return;
  values.resize(num_tokens + kLargestVector);
  ids.resize(values.size());
}

SplitSums Split(const SplitArgs& args, TokenBuffer& inside) {
  SplitArgs finite = args;
  finite.range.low = std::max(args.range.low, std::numeric_limits<float>::lowest());
  inside.Reserve(args.tokens.values.size());
  const SplitSums sums = HWY_DYNAMIC_DISPATCH(SplitInto)(finite, inside);
  if (!args.tokens.ids.empty()) {
    for (size_t i = 0; i < inside.count; ++i) inside.ids[i] = args.tokens.ids[inside.ids[i]];
  }
  return sums;
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
