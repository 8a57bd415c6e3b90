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

// Calls take(c, count, values) with the normalised values of columns [c, c + count), at most a vector of them.
template <typename Take>
HWY_ATTR void NormColumns(const RmsNormArgs& args, const float* x, const Take& take) {
  const auto num_columns = static_cast<size_t>(args.out.shape[1]);
  const FloatVec inverse = hn::Set(kFloat, InverseRms(MeanSquare(x, num_columns), args.eps));
  const size_t lanes = NumLanes();
  size_t c = 0;
  for (; c + lanes <= num_columns; c += lanes) {
    const FloatVec normed = hn::Mul(hn::LoadU(kFloat, x + c), inverse);
    take(c, lanes, hn::Mul(normed, hn::LoadU(kFloat, args.gain + c)));
  }
  if (c < num_columns) {
    const FloatVec normed = hn::Mul(LoadPrefix(x + c, num_columns - c), inverse);
    take(c, num_columns - c, hn::Mul(normed, LoadPrefix(args.gain + c, num_columns - c)));
  }
}

void NormRow(const RmsNormArgs& args, int64_t i) {
  const int64_t num_columns = args.out.shape[1];
  const float* x = args.x.as<float>() + (args.rows != nullptr ? args.rows[i] : i) * num_columns;
  const size_t lanes = NumLanes();
  if (args.mode == OutputMode::kAdd) {
    float* sums = args.out.as<float>() + i * num_columns;
    NormColumns(args, x, [&](size_t c, size_t count, FloatVec values) HWY_ATTR {
      if (count == lanes) return hn::StoreU(hn::Add(hn::LoadU(kFloat, sums + c), values), kFloat, sums + c);
      StorePrefix(hn::Add(LoadPrefix(sums + c, count), values), sums + c, count);
    });
    return;
  }
  uint16_t* out = args.out.as<uint16_t>() + i * num_columns;
  NormColumns(args, x, [&](size_t c, size_t count, FloatVec values) HWY_ATTR {
    if (count == lanes) return StoreBf16(values, out + c);
    StoreBf16Prefix(values, out + c, count);
  });
}

void MeanSquaresOfRow(const MeanSquaresArgs& args, int64_t i) {
  const float* x = args.x.as<float>() + i * args.x.shape[1];
  float* out = args.out.as<float>() + 2 * i;
  for (size_t part = 0; part < 2; x += args.widths[part++]) {
    out[part] = MeanSquare(x, static_cast<size_t>(args.widths[part]));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(NormRow);
HWY_EXPORT(MeanSquaresOfRow);

void RmsNorm(const RmsNormArgs& args, ThreadPool& pool) {
  const int64_t num_columns = args.out.shape[1];
  FT_CHECK(args.x.dtype == DType::kF32 && args.x.shape[1] == num_columns);
  FT_CHECK(args.out.dtype == (args.mode == OutputMode::kAdd ? DType::kF32 : DType::kBF16));
  ParallelForRows(args.out.shape[0], num_columns, pool, [&](int64_t i) { HWY_DYNAMIC_DISPATCH(NormRow)(args, i); });
}

void MeanSquares(const MeanSquaresArgs& args, ThreadPool& pool) {
  const int64_t num_rows = args.x.shape[0], num_columns = args.widths[0] + args.widths[1];
  FT_CHECK(args.x.dtype == DType::kF32 && args.x.shape[1] >= num_columns);
  FT_CHECK(args.out.dtype == DType::kF32 && args.out.shape == Shape(num_rows, 2));
  ParallelForRows(num_rows, num_columns, pool, [&](int64_t i) { HWY_DYNAMIC_DISPATCH(MeanSquaresOfRow)(args, i); });
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
