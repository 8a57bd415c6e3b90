// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cap_logits.h"

#include "kernels/check.h"
#include "kernels/cpu/base/parallel_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cap_logits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

void CapRange(float scale, float cap, size_t count, float* logits) {
  const size_t lanes = NumLanes();
  const FloatVec caps = hn::Set(kFloat, cap), scales = hn::Set(kFloat, scale / cap);
  const auto capped = [&](FloatVec x) HWY_ATTR { return hn::Mul(hn::Tanh(kFloat, hn::Mul(x, scales)), caps); };
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(capped(hn::LoadU(kFloat, logits + i)), kFloat, logits + i);
  if (i < count) StorePrefix(capped(LoadPrefix(logits + i, count - i)), logits + i, count - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(CapRange);

void CapLogits(const CapLogitsArgs& args, ThreadPool& pool) {
  const int64_t num_columns = args.logits.shape[1];
  FT_CHECK(args.logits.dtype == DType::kF32 && (!args.cap.has_value() || *args.cap > 0));
  ParallelForRows(args.logits.shape[0], num_columns, pool, [&](int64_t row) {
    float* logits = args.logits.as<float>() + row * num_columns;
    if (args.cap.has_value()) {
      HWY_DYNAMIC_DISPATCH(CapRange)(args.scale, *args.cap, num_columns, logits);
    } else {
      for (int64_t i = 0; i < num_columns; ++i) logits[i] *= args.scale;
    }
  });
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
