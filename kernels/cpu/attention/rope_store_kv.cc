// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/rope_store_kv.h"

#include <algorithm>
#include <optional>

#include "kernels/check.h"
#include "kernels/cpu/base/parallel_rows.h"
#include "kernels/cpu/base/workspace.h"
#include "kernels/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/rope_store_kv.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

// The norms of a row's q (part 0) or k (part 1).
struct HeadNorms {
  const float* gain = nullptr;       // [D] or [heads * D]; null: there are none
  std::optional<float> mean_square;  // of all heads; unset: each head has its own
  float eps = 0;
};

HeadNorms NormsOf(const RopeStoreKvArgs& args, int64_t row, int64_t part) {
  HeadNorms norms = {.gain = part == 0 ? args.q_gain : args.k_gain, .eps = args.eps};
  if (args.mean_squares != nullptr) norms.mean_square = args.mean_squares[2 * row + part];
  return norms;
}

HWY_ATTR void NormHead(const HeadNorms& norms, size_t head_idx, size_t head_dim, float* head) {
  if (norms.gain == nullptr) return;
  const float* gain = norms.gain + (norms.mean_square ? head_idx * head_dim : 0);
  const float mean_square = norms.mean_square ? *norms.mean_square : MeanSquare(head, head_dim);
  const FloatVec inverse = hn::Set(kFloat, InverseRms(mean_square, norms.eps));
  const size_t lanes = NumLanes();
  size_t d = 0;
  for (; d + lanes <= head_dim; d += lanes) {
    const FloatVec normed = hn::Mul(hn::LoadU(kFloat, head + d), inverse);
    hn::StoreU(hn::Mul(normed, hn::LoadU(kFloat, gain + d)), kFloat, head + d);
  }
  if (d < head_dim) {
    const FloatVec normed = hn::Mul(LoadPrefix(head + d, head_dim - d), inverse);
    StorePrefix(hn::Mul(normed, LoadPrefix(gain + d, head_dim - d)), head + d, head_dim - d);
  }
}

// Rotates the pairs (first[i], second[i]) by the angles given as cos and sin.
HWY_ATTR void Rotate(float* first, float* second, size_t half_dim, const float* cos, const float* sin) {
  const size_t lanes = NumLanes();
  for (size_t i = 0; i < half_dim; i += lanes) {
    const size_t count = std::min(lanes, half_dim - i);
    const bool full = count == lanes;
    const FloatVec x = full ? hn::LoadU(kFloat, first + i) : LoadPrefix(first + i, count);
    const FloatVec y = full ? hn::LoadU(kFloat, second + i) : LoadPrefix(second + i, count);
    const FloatVec c = full ? hn::LoadU(kFloat, cos + i) : LoadPrefix(cos + i, count);
    const FloatVec s = full ? hn::LoadU(kFloat, sin + i) : LoadPrefix(sin + i, count);
    const FloatVec turned_x = hn::NegMulAdd(y, s, hn::Mul(x, c));
    const FloatVec turned_y = hn::MulAdd(x, s, hn::Mul(y, c));
    if (full) {
      hn::StoreU(turned_x, kFloat, first + i);
      hn::StoreU(turned_y, kFloat, second + i);
    } else {
      StorePrefix(turned_x, first + i, count);
      StorePrefix(turned_y, second + i, count);
    }
  }
}

// Stores a row's K (part 0) or V (part 1) of a head in the row's slot.
HWY_ATTR void StoreHead(const RopeStoreKvArgs& args, int32_t part, int64_t row, size_t head, const float* values) {
  const KvCacheView& kv = args.kv;
  const size_t head_dim = kv.head_dim;
  const int32_t slot = args.batch.slots[row], head_idx = static_cast<int32_t>(head);
  uint8_t* const elements = kv.elements(args.layer, part, slot, head_idx);
  if (kv.has_scales()) {
    *kv.scale(args.layer, part, slot, head_idx) = QuantizeKv(kv.dtype, values, kv.head_dim, elements);
    return;
  }
  auto* const to = reinterpret_cast<uint16_t*>(elements);
  const size_t lanes = NumLanes();
  size_t d = 0;
  for (; d + lanes <= head_dim; d += lanes) StoreBf16(hn::LoadU(kFloat, values + d), to + d);
  if (d < head_dim) StoreBf16Prefix(LoadPrefix(values + d, head_dim - d), to + d, head_dim - d);
}

void RopeStoreRow(const RopeStoreKvArgs& args, int64_t row) {
  const KvCacheView& kv = args.kv;
  const size_t head_dim = kv.head_dim;
  const size_t half_dim = args.rotary_dim.value_or(kv.head_dim) / 2;
  const size_t num_kv_heads = kv.num_kv_heads;
  const size_t num_heads = args.q.shape[1] / head_dim;
  const float* qkv = args.qkv.as<float>() + row * (num_heads + 2 * num_kv_heads) * head_dim;
  const float* cos = args.cos + args.batch.positions[row] * half_dim;
  const float* sin = args.sin + args.batch.positions[row] * half_dim;

  float* q = args.q.as<float>() + row * num_heads * head_dim;
  std::copy_n(qkv, num_heads * head_dim, q);
  const HeadNorms q_norms = NormsOf(args, row, 0), k_norms = NormsOf(args, row, 1);
  for (size_t head = 0; head < num_heads; ++head, q += head_dim) {
    NormHead(q_norms, head, head_dim, q);
    Rotate(q, q + half_dim, half_dim, cos, sin);
  }

  float* k = ThreadWorkspace<float>(head_dim);
  for (size_t head = 0; head < num_kv_heads; ++head) {
    std::copy_n(qkv + (num_heads + head) * head_dim, head_dim, k);
    NormHead(k_norms, head, head_dim, k);
    Rotate(k, k + half_dim, half_dim, cos, sin);
    StoreHead(args, 0, row, head, k);
    StoreHead(args, 1, row, head, qkv + (num_heads + num_kv_heads + head) * head_dim);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(RopeStoreRow);

void RopeStoreKv(const RopeStoreKvArgs& args, ThreadPool& pool) {
  const int64_t num_rows = args.batch.num_rows;
  const int64_t num_columns = args.qkv.shape[1];
  FT_CHECK(args.qkv.dtype == DType::kF32 && args.q.dtype == DType::kF32 && args.kv.head_dim % 2 == 0);
  const int32_t rotary_dim = args.rotary_dim.value_or(args.kv.head_dim);
  FT_CHECK(rotary_dim >= 0 && rotary_dim <= args.kv.head_dim && rotary_dim % 2 == 0);
  FT_CHECK(num_columns == args.q.shape[1] + int64_t{2} * args.kv.num_kv_heads * args.kv.head_dim);
  ParallelForRows(num_rows, num_columns, pool, [&](int64_t row) { HWY_DYNAMIC_DISPATCH(RopeStoreRow)(args, row); });
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
