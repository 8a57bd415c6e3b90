// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/glu.h"

#include <algorithm>

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

// The number y with f(x) = x / (1 + exp(-y)), or 1 / (1 + exp(-y)): tanh is a sigmoid, too.
template <Activation kActivation>
HWY_ATTR FloatVec SigmoidInput(FloatVec x) {
  if constexpr (kActivation == Activation::kSilu || kActivation == Activation::kSigmoid) return x;
  if constexpr (kActivation == Activation::kGeluQuick) return hn::Mul(x, hn::Set(kFloat, 1.702f));
  const FloatVec cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(kFloat, 0.044715f), hn::Set(kFloat, 1.0f));
  return hn::Mul(hn::Mul(x, cubic), hn::Set(kFloat, 1.5957691f));  // 2 sqrt(2 / pi)
}

// f(gate) * up. Above 88 the exponential would overflow, and the quotient is below 1e-36.
template <Activation kActivation>
HWY_ATTR FloatVec Gated(FloatVec gate, FloatVec up) {
  const FloatVec y = SigmoidInput<kActivation>(gate);
  const FloatVec one = hn::Set(kFloat, 1.0f), numerator = kActivation == Activation::kSigmoid ? one : gate;
  const FloatVec exponential = hn::Exp(kFloat, hn::Min(hn::Neg(y), hn::Set(kFloat, 88.0f)));
  return hn::Mul(hn::Div(numerator, hn::Add(exponential, one)), up);
}

// A minimum and a maximum would drop a value that is no number.
HWY_ATTR FloatVec CutAbove(FloatVec x, FloatVec limit) { return hn::IfThenElse(hn::Gt(x, limit), limit, x); }
HWY_ATTR FloatVec CutBelow(FloatVec x, FloatVec limit) { return hn::IfThenElse(hn::Lt(x, limit), limit, x); }

// What comes before the activation.
HWY_ATTR void CutAndShift(const Gating& gating, FloatVec& gate, FloatVec& up) {
  if (gating.limit.has_value()) {
    const FloatVec limit = hn::Set(kFloat, *gating.limit);
    gate = CutAbove(gate, limit);
    up = CutBelow(CutAbove(up, limit), hn::Neg(limit));
  }
  up = hn::Add(up, hn::Set(kFloat, gating.up_offset));
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

// With any switch set.
template <Activation kActivation>
HWY_ATTR void GateRangeWith(const Gating& gating, const float* gate_up, size_t count, uint16_t* out) {
  const size_t lanes = NumLanes();
  for (size_t i = 0; i < count; i += lanes) {
    const size_t num = std::min(lanes, count - i);
    float gates[16] = {}, ups[16] = {};  // a vector has at most 16 lanes
    for (size_t lane = 0; lane < num; ++lane) {
      gates[lane] = gate_up[gating.is_interleaved ? 2 * (i + lane) : i + lane];
      ups[lane] = gate_up[gating.is_interleaved ? 2 * (i + lane) + 1 : count + i + lane];
    }
    FloatVec gate = hn::LoadU(kFloat, gates), up = hn::LoadU(kFloat, ups);
    CutAndShift(gating, gate, up);
    StoreBf16Prefix(Gated<kActivation>(gate, up), out + i, num);
  }
}

template <Activation kActivation>
HWY_ATTR void GateRow(const Gating& gating, const float* gate_up, size_t count, uint16_t* out) {
  const bool is_plain = !gating.limit.has_value() && gating.up_offset == 0 && !gating.is_interleaved;
  if (is_plain) return GateRange<kActivation>(gate_up, gate_up + count, count, out);
  GateRangeWith<kActivation>(gating, gate_up, count, out);
}

void GluRow(const Gating& gating, const float* gate_up, size_t count, uint16_t* out) {
  switch (gating.activation) {
    case Activation::kSigmoid:
      return GateRow<Activation::kSigmoid>(gating, gate_up, count, out);
    case Activation::kGeluQuick:
      return GateRow<Activation::kGeluQuick>(gating, gate_up, count, out);
    case Activation::kGeluTanh:
      return GateRow<Activation::kGeluTanh>(gating, gate_up, count, out);
    default:
      return GateRow<Activation::kSilu>(gating, gate_up, count, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(GluRow);

void Glu(const GluArgs& args, ThreadPool& pool) {
  const int64_t num_columns = args.out.shape[1];
  FT_CHECK(args.gate_up.dtype == DType::kF32 && args.out.dtype == DType::kBF16);
  FT_CHECK(args.gate_up.shape[1] == 2 * num_columns && args.gating.activation != Activation::kGelu);
  ParallelForRows(args.out.shape[0], 2 * num_columns, pool, [&](int64_t row) {
    HWY_DYNAMIC_DISPATCH(GluRow)
    (args.gating, args.gate_up.as<float>() + row * 2 * num_columns, num_columns,
     args.out.as<uint16_t>() + row * num_columns);
  });
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
