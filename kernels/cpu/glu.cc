// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/glu.h"

#include "kernels/check.h"
#include "kernels/cpu/base/parallel_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/glu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

// The number y with f(x) = x / (1 + exp(-y)): tanh is a sigmoid, too.
template <Activation kActivation>
HWY_ATTR FloatVec SigmoidInput(FloatVec x) {
  if constexpr (kActivation == Activation::kSilu) return x;
  const FloatVec cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(kFloat, 0.044715f), hn::Set(kFloat, 1.0f));
  return hn::Mul(hn::Mul(x, cubic), hn::Set(kFloat, 1.5957691f));  // 2 sqrt(2 / pi)
}

// f(gate) * up. Above 88 the exponential would overflow, and the quotient is below 1e-36.
template <Activation kActivation>
HWY_ATTR FloatVec Gated(FloatVec gate, FloatVec up) {
  const FloatVec y = SigmoidInput<kActivation>(gate);
  const FloatVec exponential = hn::Exp(kFloat, hn::Min(hn::Neg(y), hn::Set(kFloat, 88.0f)));
  return hn::Mul(hn::Div(gate, hn::Add(exponential, hn::Set(kFloat, 1.0f))), up);
}

template <Activation kActivation>
HWY_ATTR void GateRange(const float* gate, const float* up, size_t count, uint16_t* out) {
  const size_t lanes = NumLanes();
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    StoreBf16(Gated<kActivation>(hn::LoadU(kFloat, gate + i), hn::LoadU(kFloat, up + i)), out + i);
  }
  if (i < count) {
    StoreBf16Prefix(Gated<kActivation>(LoadPrefix(gate + i, count - i), LoadPrefix(up + i, count - i)), out + i,
                    count - i);
  }
}

void GluRange(Activation activation, const float* gate, const float* up, size_t count, uint16_t* out) {
  if (activation == Activation::kSilu) return GateRange<Activation::kSilu>(gate, up, count, out);
  GateRange<Activation::kGeluTanh>(gate, up, count, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(GluRange);

void Glu(const GluArgs& args, ThreadPool& pool) {
  const int64_t num_columns = args.out.shape[1];
  FT_CHECK(args.gate_up.dtype == DType::kF32 && args.out.dtype == DType::kBF16);
  FT_CHECK(args.gate_up.shape[1] == 2 * num_columns && args.activation != Activation::kGelu);
  ParallelForRows(args.out.shape[0], 2 * num_columns, pool, [&](int64_t row) {
    const float* gate = args.gate_up.as<float>() + row * 2 * num_columns;
    HWY_DYNAMIC_DISPATCH(GluRange)
    (args.activation, gate, gate + num_columns, num_columns, args.out.as<uint16_t>() + row * num_columns);
  });
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
