// SPDX-License-Identifier: Apache-2.0
#include "common/model/transformer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "common/model/rope.h"
#include "kernels/check.h"

namespace foretoken::model {

using kernels::DType;
using kernels::OutputMode;
using kernels::Shape;
using tensor::Tensor;

KvCache MakeKvCache(const ModelConfig& config, int32_t num_blocks, kernels::Backend& backend) {
  KvCache cache{.buffer = nullptr,
                .view = {.data = nullptr,
                         .num_layers = static_cast<int32_t>(config.num_layers),
                         .num_blocks = num_blocks,
                         .num_kv_heads = static_cast<int32_t>(config.num_kv_heads),
                         .head_dim = static_cast<int32_t>(config.head_dim)}};
  cache.buffer = backend.Allocate(cache.view.num_bytes());
  cache.view.data = cache.buffer.get();
  return cache;
}

Transformer::Transformer(const ModelConfig& config, ModelWeights weights, kernels::Backend& backend,
                         const TransformerOptions& options)
    : config_(config), weights_(std::move(weights)), backend_(backend), options_(options) {
  const RopeTables tables = MakeRopeTables(ComputeRopeFrequencies(config.rope, config.head_dim), options.max_positions);
  rope_cos_ = Tensor::FromHost(backend, tables.cos);
  rope_sin_ = Tensor::FromHost(backend, tables.sin);
  const auto matrix = [&](DType dtype, int64_t rows, int64_t cols) {
    return Tensor(backend, dtype, Shape(rows, cols));
  };
  const int64_t rows = options.max_rows;
  const int64_t q_size = config.num_heads * config.head_dim;
  hidden_ = matrix(DType::kF32, rows, config.hidden_size);
  normed_ = matrix(DType::kBF16, rows, config.hidden_size);
  qkv_ = matrix(DType::kF32, rows, q_size + 2 * config.num_kv_heads * config.head_dim);
  q_ = matrix(DType::kF32, rows, q_size);
  attention_ = matrix(DType::kBF16, rows, q_size);
  gate_up_ = matrix(DType::kF32, rows, 2 * config.intermediate_size);
  ffn_ = matrix(DType::kBF16, rows, config.intermediate_size);
  logits_ = matrix(DType::kF32, options.max_logit_rows, config.vocab_size);
}

kernels::ConstTensorView Transformer::Forward(const ForwardBatch& batch, const kernels::KvCacheView& kv) {
  const kernels::BatchView view = Upload(batch);
  backend_.Embed({.weight = weights_.embed.get(), .token_ids = view.token_ids, .out = hidden_.rows(view.num_rows)});
  for (int32_t layer_idx = 0; layer_idx < config_.num_layers; ++layer_idx) RunLayer(layer_idx, view, kv);
  return Logits(static_cast<int32_t>(batch.logit_rows.size()));
}

void Transformer::RunLayer(int32_t layer_idx, const kernels::BatchView& batch, const kernels::KvCacheView& kv) {
  const LayerWeights& layer = weights_.layers[layer_idx];
  const int32_t T = batch.num_rows;
  const auto eps = static_cast<float>(config_.rms_norm_eps);

  backend_.RmsNorm({.x = hidden_.rows(T), .gain = layer.input_norm.f32(), .eps = eps, .out = normed_.rows(T)});
  backend_.MatMul({.x = normed_.rows(T), .weight = layer.qkv.get(), .bias = layer.qkv_bias.f32(), .out = qkv_.rows(T)});
  backend_.RopeStoreKv({.qkv = qkv_.rows(T),
                        .q_gain = layer.q_norm.f32(),
                        .k_gain = layer.k_norm.f32(),
                        .eps = eps,
                        .cos = rope_cos_.f32(),
                        .sin = rope_sin_.f32(),
                        .batch = batch,
                        .kv = kv,
                        .layer = layer_idx,
                        .q = q_.rows(T)});
  backend_.Attention({.q = q_.rows(T),
                      .batch = batch,
                      .kv = kv,
                      .layer = layer_idx,
                      .window = config_.sliding_windows[layer_idx],
                      .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim))),
                      .out = attention_.rows(T)});
  backend_.MatMul({.x = attention_.rows(T),
                   .weight = layer.o.get(),
                   .bias = layer.o_bias.f32(),
                   .mode = OutputMode::kAdd,
                   .out = hidden_.rows(T)});

  backend_.RmsNorm({.x = hidden_.rows(T), .gain = layer.post_attention_norm.f32(), .eps = eps, .out = normed_.rows(T)});
  backend_.MatMul({.x = normed_.rows(T), .weight = layer.gate_up.get(), .out = gate_up_.rows(T)});
  backend_.SiluMul({.gate_up = gate_up_.rows(T), .out = ffn_.rows(T)});
  backend_.MatMul({.x = ffn_.rows(T), .weight = layer.down.get(), .mode = OutputMode::kAdd, .out = hidden_.rows(T)});
}

kernels::ConstTensorView Transformer::Logits(int32_t num_logit_rows) {
  const kernels::TensorView logits = logits_.rows(num_logit_rows);
  if (num_logit_rows == 0) return logits;
  backend_.RmsNorm({.x = hidden_.view(),
                    .rows = logit_rows_,
                    .gain = weights_.final_norm.f32(),
                    .eps = static_cast<float>(config_.rms_norm_eps),
                    .out = normed_.rows(num_logit_rows)});
  backend_.MatMul({.x = normed_.rows(num_logit_rows), .weight = &weights_.head_or_embed(), .out = logits});
  return logits;
}

kernels::BatchView Transformer::Upload(const ForwardBatch& batch) {
  FT_CHECK(batch.num_rows() > 0 && batch.num_rows() <= options_.max_rows);
  FT_CHECK(static_cast<int32_t>(batch.logit_rows.size()) <= options_.max_logit_rows);
  FT_CHECK(*std::max_element(batch.positions.begin(), batch.positions.end()) < options_.max_positions);
  const std::array<const std::vector<int32_t>*, 10> arrays = {
      &batch.token_ids,       &batch.positions,      &batch.slots,          &batch.chain_lens,
      &batch.ancestor_begins, &batch.ancestor_slots, &batch.segment_begins, &batch.block_table_begins,
      &batch.block_tables,    &batch.logit_rows};
  staging_.clear();
  std::array<size_t, arrays.size()> offsets;
  for (size_t i = 0; i < arrays.size(); ++i) {
    offsets[i] = staging_.size();
    staging_.insert(staging_.end(), arrays[i]->begin(), arrays[i]->end());
  }
  if (staging_.size() > batch_capacity_) {
    batch_capacity_ = 2 * staging_.size();
    batch_buffer_ = backend_.Allocate(batch_capacity_ * sizeof(int32_t));
  }
  auto* device = static_cast<int32_t*>(batch_buffer_.get());
  backend_.Copy(device, staging_.data(), staging_.size() * sizeof(int32_t), kernels::CopyKind::kToDevice);
  logit_rows_ = device + offsets[9];
  return {.num_rows = batch.num_rows(),
          .num_segments = batch.num_segments(),
          .token_ids = device + offsets[0],
          .positions = device + offsets[1],
          .slots = device + offsets[2],
          .chain_lens = device + offsets[3],
          .ancestor_begins = device + offsets[4],
          .ancestor_slots = device + offsets[5],
          .segment_begins = device + offsets[6],
          .block_table_begins = device + offsets[7],
          .block_tables = device + offsets[8]};
}

}  // namespace foretoken::model
