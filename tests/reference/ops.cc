// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace foretoken::reference {
namespace {

using kernels::FloatFromBf16;
using kernels::kKvBlockSize;

double InverseRms(const double* x, int64_t count, double eps) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i] * x[i];
  return 1 / std::sqrt(sum / static_cast<double>(count) + eps);
}

}  // namespace

double Activated(kernels::Activation activation, double x) {
  switch (activation) {
    case kernels::Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case kernels::Activation::kSilu:
      return x / (1 + std::exp(-x));
    case kernels::Activation::kGelu:
      return x * (1 + std::erf(x / std::sqrt(2.0))) / 2;
    case kernels::Activation::kGeluTanh:
      // (1 + tanh(y)) / 2 is 1 / (1 + exp(-2 y)), which has no difference of large numbers.
      return x / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case kernels::Activation::kGeluQuick:
      return x / (1 + std::exp(-1.702 * x));
  }
  return 0;
}

double Capped(double x, const std::optional<double>& cap) { return cap ? *cap * std::tanh(x / *cap) : x; }

double Gated(const kernels::Gating& gating, double gate, double up) {
  if (gating.limit) {
    gate = std::min<double>(gate, *gating.limit);
    up = std::clamp<double>(up, -*gating.limit, *gating.limit);
  }
  return Activated(gating.activation, gate) * (up + gating.up_offset);
}

std::vector<double> RmsNorm(const kernels::RmsNormArgs& args) {
  const int64_t num_columns = args.out.shape[1];
  std::vector<double> out;
  for (int64_t i = 0; i < args.out.shape[0]; ++i) {
    const float* x = args.x.as<float>() + (args.rows != nullptr ? args.rows[i] : i) * num_columns;
    const std::vector<double> row(x, x + num_columns);
    const double inverse = InverseRms(row.data(), num_columns, args.eps);
    for (int64_t c = 0; c < num_columns; ++c) out.push_back(row[c] * inverse * args.gain[c]);
  }
  return out;
}

std::vector<double> Glu(const kernels::GluArgs& args) {
  const int64_t num_columns = args.out.shape[1];
  std::vector<double> out;
  for (int64_t row = 0; row < args.out.shape[0]; ++row) {
    const float* gate_up = args.gate_up.as<float>() + row * 2 * num_columns;
    const bool takes_turns = args.gating.is_interleaved;
    for (int64_t c = 0; c < num_columns; ++c) {
      out.push_back(
          Gated(args.gating, gate_up[takes_turns ? 2 * c : c], gate_up[takes_turns ? 2 * c + 1 : num_columns + c]));
    }
  }
  return out;
}

RotatedRows RopeStoreKv(const kernels::RopeStoreKvArgs& args) {
  const int64_t head_dim = args.kv.head_dim, half_dim = args.rotary_dim.value_or(args.kv.head_dim) / 2;
  const int64_t num_kv_heads = args.kv.num_kv_heads, num_heads = args.q.shape[1] / head_dim;
  RotatedRows rows;
  for (int64_t row = 0; row < args.batch.num_rows; ++row) {
    const float* qkv = args.qkv.as<float>() + row * args.qkv.shape[1];
    const int64_t position = args.batch.positions[row];
    for (int64_t head = 0; head < num_heads + 2 * num_kv_heads; ++head) {
      std::vector<double> x(qkv + head * head_dim, qkv + (head + 1) * head_dim);
      const bool is_q = head < num_heads, is_v = head >= num_heads + num_kv_heads;
      const float* gain = is_v ? nullptr : is_q ? args.q_gain : args.k_gain;
      if (gain != nullptr) {
        double inverse = InverseRms(x.data(), head_dim, args.eps);
        if (args.mean_squares != nullptr) {
          inverse = 1 / std::sqrt(args.mean_squares[2 * row + (is_q ? 0 : 1)] + double{args.eps});
          gain += (is_q ? head : head - num_heads) * head_dim;
        }
        for (int64_t d = 0; d < head_dim; ++d) x[d] *= inverse * gain[d];
      }
      for (int64_t i = 0; i < half_dim && !is_v; ++i) {
        const double c = args.cos[position * half_dim + i], s = args.sin[position * half_dim + i];
        const double first = x[i], second = x[i + half_dim];
        x[i] = first * c - second * s;
        x[i + half_dim] = second * c + first * s;
      }
      std::vector<double>& to = is_v ? rows.v : is_q ? rows.q : rows.k;
      to.insert(to.end(), x.begin(), x.end());
    }
  }
  return rows;
}

VisibleSlots SlotsOfRow(const kernels::AttentionArgs& args, int32_t segment, int32_t row) {
  const kernels::BatchView& batch = args.batch;
  const int32_t end = batch.positions[row] + 1;
  const int32_t origin = args.window_origins == nullptr ? batch.positions[row] : args.window_origins[row];
  VisibleSlots visible{.first_position = args.window ? std::max(0, origin - *args.window + 1) : 0, .slots = {}};
  for (int32_t position = visible.first_position; position < end; ++position) {
    if (position < batch.chain_lens[row]) {
      const int32_t block = batch.block_tables[batch.block_table_begins[segment] + position / kKvBlockSize];
      visible.slots.push_back(block * kKvBlockSize + position % kKvBlockSize);
    } else {
      visible.slots.push_back(batch.ancestor_slots[batch.ancestor_begins[row] + position - batch.chain_lens[row]]);
    }
  }
  return visible;
}

uint16_t& CacheElement(const kernels::KvCacheView& kv, int32_t layer, int32_t part, int32_t slot, int32_t head,
                       int32_t d) {
  const size_t block = slot / kKvBlockSize, offset = slot % kKvBlockSize;
  auto* const elements = reinterpret_cast<uint16_t*>(kv.part_bytes(layer, part));
  return elements[((block * kv.num_kv_heads + head) * kKvBlockSize + offset) * kv.head_dim + d];
}

double CacheValue(const kernels::KvCacheView& kv, int32_t layer, int32_t part, int32_t slot, int32_t head, int32_t d) {
  if (kv.dtype == kernels::KvCacheDtype::kBf16) return FloatFromBf16(CacheElement(kv, layer, part, slot, head, d));
  // [L, 2, blocks, K] of [16, D] codes and [16] scales.
  const size_t block = slot / kKvBlockSize, offset = slot % kKvBlockSize, head_bytes = kKvBlockSize * (kv.head_dim + 4);
  const uint8_t* codes = static_cast<const uint8_t*>(kv.data) +
                         (((layer * 2 + part) * kv.num_blocks + block) * kv.num_kv_heads + head) * head_bytes;
  float scale = 0;
  std::memcpy(&scale, codes + kKvBlockSize * kv.head_dim + offset * 4, 4);
  const uint8_t code = codes[offset * kv.head_dim + d];
  if (kv.dtype == kernels::KvCacheDtype::kInt8) return double{scale} * static_cast<int8_t>(code);
  return double{scale} * kernels::FloatFromE4m3(code);
}

std::vector<double> Attention(const kernels::AttentionArgs& args) {
  const int32_t head_dim = args.kv.head_dim;
  const auto num_heads = static_cast<int32_t>(args.q.shape[1] / head_dim);
  std::vector<double> out(args.batch.num_rows * num_heads * head_dim);
  for (int32_t segment = 0; segment < args.batch.num_segments; ++segment) {
    for (int32_t row = args.batch.segment_begins[segment]; row < args.batch.segment_begins[segment + 1]; ++row) {
      const std::vector<int32_t> slots = SlotsOfRow(args, segment, row).slots;
      for (int32_t head = 0; head < num_heads; ++head) {
        const int32_t kv_head = head / (num_heads / args.kv.num_kv_heads);
        const float* q = args.q.as<float>() + (row * num_heads + head) * head_dim;
        std::vector<double> scores;
        for (const int32_t slot : slots) {
          double score = 0;
          for (int32_t d = 0; d < head_dim; ++d) {
            score += double{q[d]} * CacheValue(args.kv, args.layer, 0, slot, kv_head, d);
          }
          scores.push_back(Capped(score * args.scale, args.cap));
        }
        const double max = *std::max_element(scores.begin(), scores.end());
        double sum = args.sinks == nullptr ? 0 : std::exp(args.sinks[head] - max);
        for (double& score : scores) sum += score = std::exp(score - max);
        for (size_t j = 0; j < slots.size(); ++j) {
          for (int32_t d = 0; d < head_dim; ++d) {
            const double value = CacheValue(args.kv, args.layer, 1, slots[j], kv_head, d);
            out[(row * num_heads + head) * head_dim + d] += scores[j] / sum * value;
          }
        }
      }
    }
  }
  return out;
}

}  // namespace foretoken::reference
