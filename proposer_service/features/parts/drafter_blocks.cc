// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/parts/drafter_blocks.h"

#include <cmath>
#include <utility>

#include "common/model/config/rope.h"

namespace foretoken::proposer {

using kernels::DType;
using kernels::OutputMode;
using kernels::Shape;
using kernels::TensorView;
using tensor::Tensor;

DrafterBlocks::DrafterBlocks(const model::ModelConfig& config, std::vector<model::LayerWeights> layers,
                             kernels::Backend& backend, const BlockLimits& limits)
    : config_(config), layers_(std::move(layers)), backend_(backend) {
  const model::RopeTables tables = model::MakeRopeTables(
      model::ComputeRopeFrequencies(config.rope, config.head_dim, limits.max_positions), limits.max_positions);
  rope_cos_ = Tensor::FromHost(backend_, tables.cos);
  rope_sin_ = Tensor::FromHost(backend_, tables.sin);
  kv_ = {.num_layers = num_layers(),
         .num_blocks = limits.num_blocks,
         .num_kv_heads = static_cast<int32_t>(config.num_kv_heads),
         .head_dim = static_cast<int32_t>(config.head_dim),
         .dtype = backend.kv_cache_dtype()};
  kv_buffer_ = backend_.Allocate(kv_.num_bytes());
  kv_.data = kv_buffer_.get();
  const auto matrix = [&](DType dtype, int64_t cols) { return Tensor(backend_, dtype, Shape(limits.max_rows, cols)); };
  const int64_t q_size = config.num_heads * config.head_dim;
  normed_ = matrix(DType::kBF16, config.hidden_size);
  qkv_ = matrix(DType::kF32, q_size + 2 * config.num_kv_heads * config.head_dim);
  q_ = matrix(DType::kF32, q_size);
  attention_ = matrix(DType::kBF16, q_size);
  gate_up_ = matrix(DType::kF32, 2 * config.intermediate_size);
  ffn_ = matrix(DType::kBF16, config.intermediate_size);
}

void DrafterBlocks::StoreKv(const kernels::BatchView& batch, int32_t layer_idx, const TensorView& input) {
  const model::LayerWeights& layer = layers_[layer_idx];
  const int32_t T = batch.num_rows;
  backend_.MatMul({.x = input, .weight = layer.qkv.get(), .bias = layer.qkv_bias.f32(), .out = qkv_.rows(T)});
  backend_.RopeStoreKv({.qkv = qkv_.rows(T),
                        .q_gain = layer.q_norm.f32(),
                        .k_gain = layer.k_norm.f32(),
                        .eps = static_cast<float>(config_.rms_norm_eps),
                        .cos = rope_cos_.f32(),
                        .sin = rope_sin_.f32(),
                        .batch = batch,
                        .kv = kv_,
                        .layer = layer_idx,
                        .q = q_.rows(T)});
}

void DrafterBlocks::Attend(const kernels::BatchView& batch, int32_t layer_idx, const TensorView& input,
                           const TensorView& residual, const Sight& sight) {
  const model::LayerWeights& layer = layers_[layer_idx];
  const int32_t T = batch.num_rows;
  StoreKv(batch, layer_idx, input);
  kernels::BatchView seen = batch;
  if (sight.last_seen != nullptr)
    seen.positions = sight.last_seen;  // attention takes from a position what its row sees
  backend_.Attention({.q = q_.rows(T),
                      .batch = seen,
                      .kv = kv_,
                      .layer = layer_idx,
                      .window = config_.sliding_windows[layer_idx],
                      .window_origins = sight.window_origins,
                      .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim))),
                      .sinks = layer.sinks.f32(),
                      .out = attention_.rows(T)});
  backend_.MatMul({.x = attention_.rows(T),
                   .weight = layer.o.get(),
                   .bias = layer.o_bias.f32(),
                   .mode = OutputMode::kAdd,
                   .out = residual});
}

void DrafterBlocks::Feed(int32_t layer_idx, const TensorView& residual) {
  const model::LayerWeights& layer = layers_[layer_idx];
  const int64_t T = residual.shape[0];
  backend_.RmsNorm({.x = residual,
                    .gain = layer.mlp_norm.f32(),
                    .eps = static_cast<float>(config_.rms_norm_eps),
                    .out = normed_.rows(T)});
  backend_.MatMul({.x = normed_.rows(T), .weight = layer.gate_up.get(), .out = gate_up_.rows(T)});
  backend_.Glu({.gate_up = gate_up_.rows(T), .out = ffn_.rows(T)});
  backend_.MatMul({.x = ffn_.rows(T), .weight = layer.down.get(), .mode = OutputMode::kAdd, .out = residual});
}

void DrafterBlocks::Run(const kernels::BatchView& batch, int32_t layer_idx, const TensorView& residual,
                        const Sight& sight) {
  const TensorView normed = normed_.rows(batch.num_rows);
  backend_.RmsNorm({.x = residual,
                    .gain = layers_[layer_idx].input_norm.f32(),
                    .eps = static_cast<float>(config_.rms_norm_eps),
                    .out = normed});
  Attend(batch, layer_idx, normed, residual, sight);
  Feed(layer_idx, residual);
}

}  // namespace foretoken::proposer
