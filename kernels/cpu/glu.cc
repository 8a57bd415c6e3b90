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
  if constexpr (kActivation == Activation::kGeluQuick) return hn::Mul(x, hn::Set(kFloat, 1.702f));
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

// A minimum and a maximum would drop a value that is no number.
HWY_ATTR FloatVec CutAbove(FloatVec x, FloatVec limit) { return hn::IfThenElse(hn::Gt(x, limit), limit, x); }
HWY_ATTR FloatVec CutBelow(FloatVec x, FloatVec limit) { return hn::IfThenElse(hn::Lt(x, limit), limit, x); }

// One vector of gate and up after another.
template <Activation kActivation>
HWY_ATTR FloatVec Gate(const Gating& gating, FloatVec gate, FloatVec up) {
  if (gating.limit.has_value()) {
    const FloatVec limit = hn::Set(kFloat, *gating.limit);
    gate = CutAbove(gate, limit);
    up = CutBelow(CutAbove(up, limit), hn::Neg(limit));
  }
  if (gating.up_offset != 0) up = hn::Add(up, hn::Set(kFloat, gating.up_offset));
  return Gated<kActivation>(gate, up);
}

template <Activation kActivation>
HWY_ATTR void GateRange(const Gating& gating, const float* gate_up, size_t count, uint16_t* out) {
  const size_t lanes = NumLanes();
  const float* up = gate_up + count;
  size_t i = 0;
  FloatVec gates, ups;
  for (; i + lanes <= count; i += lanes) {
    if (gating.is_interleaved) {
      hn::LoadInterleaved2(kFloat, gate_up + 2 * i, gates, ups);
    } else {
      gates = hn::LoadU(kFloat, gate_up + i);
      ups = hn::LoadU(kFloat, up + i);
    }
    StoreBf16(Gate<kActivation>(gating, gates, ups), out + i);
  }
  if (i == count) return;
  const size_t rest = count - i;
  if (gating.is_interleaved) {
    float pairs[32] = {};  // two vectors have at most 16 lanes each
    std::copy_n(gate_up + 2 * i, 2 * rest, pairs);
    hn::LoadInterleaved2(kFloat, pairs, gates, ups);
  } else {
    gates = LoadPrefix(gate_up + i, rest);
    ups = LoadPrefix(up + i, rest);
  }
  StoreBf16Prefix(Gate<kActivation>(gating, gates, ups), out + i, rest);
}

void GluRange(const Gating& gating, const float* gate_up, size_t count, uint16_t* out) {
  switch (gating.activation) {
    case Activation::kGeluQuick:
      return GateRange<Activation::kGeluQuick>(gating, gate_up, count, out);
    case Activation::kGeluTanh:
      return GateRange<Activation::kGeluTanh>(gating, gate_up, count, out);
    default:
      return GateRange<Activation::kSilu>(gating, gate_up, count, out);
  }
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
  FT_CHECK(args.gate_up.shape[1] == 2 * num_columns && args.gating.activation != Activation::kGelu);
  ParallelForRows(args.out.shape[0], 2 * num_columns, pool, [&](int64_t row) {
    HWY_DYNAMIC_DISPATCH(GluRange)
    (args.gating, args.gate_up.as<float>() + row * 2 * num_columns, num_columns,
     args.out.as<uint16_t>() + row * num_columns);
  });
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
