// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/random_model.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::Shape;

class Maker {
 public:
  Maker(kernels::Backend& backend, float scale) : backend_(backend), pool_(kPoolSize) {
    RandomValues random(1);
    for (uint16_t& value : pool_) value = kernels::Bf16FromFloat(random.Normal() * scale);
  }

  // Makes a matrix of a layer.
  std::unique_ptr<kernels::Weight> LayerMatrix(int64_t num_outputs, int64_t num_inputs) {
    return Matrix(num_outputs, num_inputs, backend_.weight_quantization());
  }
  // Makes a matrix of stacked parts, each from another place in the pool.
  std::unique_ptr<kernels::Weight> Matrix(int64_t num_outputs, int64_t num_inputs,
                                          const kernels::Quantization& quantization = {}) {
    const int64_t max_rows = kPoolSize / 2 / num_inputs;
    std::vector<ConstTensorView> parts;
    for (int64_t row = 0; row < num_outputs; row += max_rows) {
      next_ = (next_ + 4099) % (kPoolSize / 2);
      parts.push_back({pool_.data() + next_, DType::kBF16, Shape(std::min(max_rows, num_outputs - row), num_inputs)});
    }
    return backend_.PrepareWeight({.parts = parts, .quantization = quantization});
  }

  // `count` is at most half of the pool's size.
  tensor::Tensor Vector(int64_t count) {
    next_ = (next_ + 4099) % (kPoolSize / 2);
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(kernels::FloatFromBf16(pool_[next_ + i]));
    return tensor::Tensor::FromHost(backend_, values);
  }

  tensor::Tensor Ones(int64_t count) {
    return tensor::Tensor::FromHost(backend_, std::vector<float>(static_cast<size_t>(count), 1.0f));
  }

 private:
  static constexpr int64_t kPoolSize = 1 << 20;
  kernels::Backend& backend_;
  std::vector<uint16_t> pool_;
  int64_t next_ = 0;
};

int64_t QkvSize(const model::ModelConfig& config) {
  return (config.num_heads + 2 * config.num_kv_heads) * config.head_dim;
}

}  // namespace

model::ModelConfig OneBillionShape(int64_t num_layers) {
  return {.hidden_size = 2048,
          .intermediate_size = 8192,
          .num_layers = num_layers,
          .num_heads = 32,
          .num_kv_heads = 8,
          .head_dim = 64,
          .vocab_size = 128256,
          .max_position_embeddings = 131072,
          .rms_norm_eps = 1e-5,
          .rope = {.theta = 500000},
          .tie_word_embeddings = true,
          .sliding_windows = std::vector<std::optional<int64_t>>(static_cast<size_t>(num_layers))};
}

model::ModelConfig OneBillionActiveShape(int64_t num_layers, int64_t num_experts) {
  model::ModelConfig config = OneBillionShape(num_layers);
  config.experts = {.num_experts = num_experts,
                    .num_chosen = 8,
                    .intermediate_size = config.intermediate_size / 8,
                    .layers = std::vector<bool>(static_cast<size_t>(num_layers), true)};
  return config;
}

model::ModelConfig EightBillionShape(int64_t num_layers) {
  return {.hidden_size = 4096,
          .intermediate_size = 14336,
          .num_layers = num_layers,
          .num_heads = 32,
          .num_kv_heads = 8,
          .head_dim = 128,
          .vocab_size = 128256,
          .max_position_embeddings = 131072,
          .rms_norm_eps = 1e-5,
          .rope = {.theta = 500000},
          .sliding_windows = std::vector<std::optional<int64_t>>(static_cast<size_t>(num_layers))};
}

model::ModelWeights RandomWeights(const model::ModelConfig& config, kernels::Backend& backend, float scale) {
  Maker maker(backend, scale);
  model::ModelWeights weights;
  if (config.experts.num_experts > 0) weights.experts = std::make_unique<model::ExpertStore>(config.num_layers);
  weights.embed = maker.Matrix(config.vocab_size, config.hidden_size, backend.head_quantization());
  for (int64_t i = 0; i < config.num_layers; ++i) {
    model::LayerWeights& layer = weights.layers.emplace_back();
    if (config.pre_norms) layer.input_norm = maker.Ones(config.hidden_size);
    layer.qkv = maker.LayerMatrix(QkvSize(config), config.hidden_size);
    if (config.attention_bias) layer.qkv_bias = maker.Vector(QkvSize(config));
    if (config.qk_norm) {
      layer.q_norm = maker.Ones(config.head_dim * (config.whole_qk_norm ? config.num_heads : 1));
      layer.k_norm = maker.Ones(config.head_dim * (config.whole_qk_norm ? config.num_kv_heads : 1));
    }
    layer.o = maker.LayerMatrix(config.hidden_size, config.num_heads * config.head_dim);
    if (config.attention_output_bias) layer.o_bias = maker.Vector(config.hidden_size);
    if (config.pre_norms) layer.mlp_norm = maker.Ones(config.hidden_size);
    if (config.post_norms) {
      layer.attention_post_norm = maker.Ones(config.hidden_size);
      layer.mlp_post_norm = maker.Ones(config.hidden_size);
    }
    if (config.has_experts(i)) {
      layer.router = maker.Matrix(config.experts.num_experts, config.hidden_size);
      for (int64_t expert = 0; expert < config.experts.num_experts; ++expert) {
        const int64_t width = config.experts.intermediate_size;
        weights.experts->Keep(static_cast<int32_t>(i), {.gate_up = maker.LayerMatrix(2 * width, config.hidden_size),
                                                        .down = maker.LayerMatrix(config.hidden_size, width)});
      }
      if (config.experts.has_choice_bias) layer.choice_bias = maker.Vector(config.experts.num_experts);
    }
    const int64_t mlp_size = config.mlp_size(i);
    if (mlp_size == 0) continue;
    layer.gate_up = maker.LayerMatrix(2 * mlp_size, config.hidden_size);
    layer.down = maker.LayerMatrix(config.hidden_size, mlp_size);
  }
  weights.final_norm = maker.Ones(config.hidden_size);
  if (!config.tie_word_embeddings)
    weights.head = maker.Matrix(config.vocab_size, config.hidden_size, backend.head_quantization());
  return weights;
}

size_t MatrixBytes(const model::ModelConfig& config, const model::ModelWeights& weights) {
  size_t num_bytes = weights.head_or_embed().num_bytes();
  for (const model::LayerWeights& layer : weights.layers) {
    for (const auto* matrix : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down, &layer.router}) {
      if (*matrix != nullptr) num_bytes += (*matrix)->num_bytes();
    }
  }
  if (weights.experts == nullptr) return num_bytes;
  for (const std::vector<model::ExpertSize>& layer : weights.experts->sizes()) {
    if (!layer.empty()) num_bytes += config.experts.num_chosen * layer[0].num_bytes;
  }
  return num_bytes;
}

double LayerMultiplies(const model::ModelConfig& config) {
  int64_t multiplies = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const model::ExpertsConfig& experts = config.experts;
    const int64_t mlp =
        config.has_experts(layer) ? experts.num_chosen * experts.intermediate_size : config.intermediate_size;
    multiplies += config.hidden_size * (QkvSize(config) + config.num_heads * config.head_dim + 3 * mlp);
  }
  return static_cast<double>(multiplies);
}

double HeadMultiplies(const model::ModelConfig& config) {
  return static_cast<double>(config.hidden_size * config.vocab_size);
}

}  // namespace foretoken::testing
