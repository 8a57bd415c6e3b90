// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/rms_norm.h"

#include "kernels/check.h"
#include "kernels/cpu/base/parallel_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

void NormRow(const RmsNormArgs& args, int64_t i) {
  const auto num_columns = static_cast<size_t>(args.out.shape[1]);
  const size_t row = args.rows != nullptr ? args.rows[i] : i;
  const float* x = args.x.as<float>() + row * num_columns;
  uint16_t* out = args.out.as<uint16_t>() + i * num_columns;
  const FloatVec inverse = hn::Set(kFloat, InverseRms(x, num_columns, args.eps));
  const size_t lanes = NumLanes();
  size_t c = 0;
  for (; c + lanes <= num_columns; c += lanes) {
    const FloatVec normed = hn::Mul(hn::LoadU(kFloat, x + c), inverse);
    StoreBf16(hn::Mul(normed, hn::LoadU(kFloat, args.gain + c)), out + c);
  }
  if (c < num_columns) {
    const FloatVec normed = hn::Mul(LoadPrefix(x + c, num_columns - c), inverse);
    StoreBf16Prefix(hn::Mul(normed, LoadPrefix(args.gain + c, num_columns - c)), out + c, num_columns - c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(NormRow);

void RmsNorm(const RmsNormArgs& args, ThreadPool& pool) {
  const int64_t num_columns = args.out.shape[1];
  FT_CHECK(args.x.dtype == DType::kF32 && args.out.dtype == DType::kBF16 && args.x.shape[1] == num_columns);
  ParallelForRows(args.out.shape[0], num_columns, pool, [&](int64_t i) { HWY_DYNAMIC_DISPATCH(NormRow)(args, i); });
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
