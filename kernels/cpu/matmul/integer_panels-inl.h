// SPDX-License-Identifier: Apache-2.0
// Scales and offsets of groups of integers, in vectors of the panel's outputs. Highway compiles this file once per
// instruction set, so it has no #pragma once.
#if defined(FORETOKEN_KERNELS_CPU_MATMUL_INTEGER_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FORETOKEN_KERNELS_CPU_MATMUL_INTEGER_PANELS_INL_H_
#undef FORETOKEN_KERNELS_CPU_MATMUL_INTEGER_PANELS_INL_H_
#else
#define FORETOKEN_KERNELS_CPU_MATMUL_INTEGER_PANELS_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"
#include "kernels/cpu/matmul/integer_panels.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

// From output i of the panel on.
HWY_INLINE FloatVec LoadTable(const std::byte* values, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return hn::Load(kFloat, reinterpret_cast<const float*>(values) + i);
  if (dtype == DType::kBF16) return LoadBf16(reinterpret_cast<const uint16_t*>(values) + i);
  const hn::Rebind<hwy::float16_t, FloatTag> half_tag;
  return hn::PromoteTo(kFloat, hn::Load(half_tag, reinterpret_cast<const hwy::float16_t*>(values) + i));
}

HWY_INLINE FloatVec LoadFactors(const std::byte* factors, int64_t i) {
  const hn::Rebind<int8_t, FloatTag> byte_tag;
  const hn::RebindToSigned<FloatTag> int_tag;
  return hn::ConvertTo(kFloat,
                       hn::PromoteTo(int_tag, hn::Load(byte_tag, reinterpret_cast<const int8_t*>(factors) + i)));
}

// A group's. Products of F16 and factors are exact, so an offset is rounded once.
HWY_INLINE FloatVec LoadScales(const IntegerPanels& layout, const GroupCursor<const std::byte>& at, int64_t i) {
  if (!layout.blocks) return LoadTable(at.scales(), layout.scale_dtype, i);
  return hn::Mul(LoadTable(at.block_scales(), DType::kF16, i), LoadFactors(at.scales(), i));
}
HWY_INLINE FloatVec LoadOffsets(const IntegerPanels& layout, const GroupCursor<const std::byte>& at, int64_t i,
                                FloatVec scales) {
  if (!layout.blocks) return LoadTable(at.offsets(), DType::kF32, i);
  const FloatVec minimums = hn::Mul(LoadTable(at.block_minimums(), DType::kF16, i), LoadFactors(at.offsets(), i));
  return hn::Sub(hn::Mul(hn::Set(kFloat, static_cast<float>(layout.blocks->zero)), scales), minimums);
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // FORETOKEN_KERNELS_CPU_MATMUL_INTEGER_PANELS_INL_H_
