// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/draw/target_weights.h"

#include <algorithm>

#include "kernels/cpu/base/workspace.h"
#include "kernels/cpu/draw/filter_cut.h"
#include "kernels/cpu/draw/logits_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/draw/target_weights.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

// [row.size()] weights.
void WeighKept(std::span<const float> row, float max, float inverse_temperature, const FilterCut& cut,
               double* weights) {
  HWY_ALIGN float buffer[kLogitsBlock];
  HWY_ALIGN float weighed[16];
  const hn::Rebind<int32_t, FloatTag> int_tag;
  const FloatVec maxes = hn::Set(kFloat, max), factor = hn::Set(kFloat, inverse_temperature);
  const FloatVec cut_value = hn::Set(kFloat, cut.value);
  const auto cut_id = hn::Set(int_tag, cut.id);
  for (size_t begin = 0; begin < row.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(row, begin, buffer);
    const size_t count = std::min(kLogitsBlock, row.size() - begin);
    for (size_t i = 0; i < count; i += NumLanes()) {
      const FloatVec value = hn::LoadU(kFloat, x + i);
      const auto ids = hn::Iota(int_tag, static_cast<int32_t>(begin + i));
      const auto at_cut = hn::AndNot(hn::RebindMask(kFloat, hn::Gt(ids, cut_id)), hn::Eq(value, cut_value));
      const auto is_kept = hn::Or(hn::Gt(value, cut_value), at_cut);
      const FloatVec weight = hn::Exp(kFloat, hn::Mul(hn::Sub(value, maxes), factor));
      hn::Store(hn::IfThenElseZero(is_kept, weight), kFloat, weighed);
      std::copy_n(weighed, std::min(NumLanes(), count - i), weights + begin + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(WeighKept);

RowWeights TargetWeights(const AdjustRowArgs& args) {
  const std::span<const float> row = AdjustRow(args);
  const RowMax top = FindMax(row);
  if (!top.is_finite) return {DrawStatus::kNonFiniteLogits};
  if (top.max == kImpossible) return {DrawStatus::kEmptySupport};
  const std::span<double> weights(ThreadWorkspace<double>(row.size()), row.size());
  if (args.sampling.is_greedy()) {
    std::fill(weights.begin(), weights.end(), 0.0);
    weights[top.id] = 1;
  } else {
    const FilterCut cut = FindCut(row, top.max, args.sampling);
    HWY_DYNAMIC_DISPATCH(WeighKept)(row, top.max, 1.0f / args.sampling.temperature, cut, weights.data());
  }
  return {DrawStatus::kOk, weights};
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
