// SPDX-License-Identifier: Apache-2.0
#include "common/model/weight_names.h"

#include "absl/strings/str_cat.h"

namespace foretoken::model {
namespace {

using kernels::Shape;

LayerWeightNames NameLayer(const ModelConfig& config, int64_t layer) {
  const int64_t hidden = config.hidden_size;
  const int64_t q_size = config.num_heads * config.head_dim;
  const int64_t kv_size = config.num_kv_heads * config.head_dim;
  const int64_t ffn = config.intermediate_size;
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const auto norm = [&](const char* role) { return WeightName{prefix + role + ".weight", Shape(hidden)}; };
  const auto matrix = [&](const char* role, int64_t outputs, int64_t inputs) {
    return WeightName{prefix + role + ".weight", Shape(outputs, inputs)};
  };
  const auto vector_if = [&](bool is_present, const char* role, int64_t size) {
    return is_present ? std::optional(WeightName{prefix + role, Shape(size)}) : std::nullopt;
  };
  return LayerWeightNames{
      .input_norm = norm("input_layernorm"),
      .q = matrix("self_attn.q_proj", q_size, hidden),
      .k = matrix("self_attn.k_proj", kv_size, hidden),
      .v = matrix("self_attn.v_proj", kv_size, hidden),
      .o = matrix("self_attn.o_proj", hidden, q_size),
      .q_bias = vector_if(config.attention_bias, "self_attn.q_proj.bias", q_size),
      .k_bias = vector_if(config.attention_bias, "self_attn.k_proj.bias", kv_size),
      .v_bias = vector_if(config.attention_bias, "self_attn.v_proj.bias", kv_size),
      .o_bias = vector_if(config.attention_output_bias, "self_attn.o_proj.bias", hidden),
      .q_norm = vector_if(config.qk_norm, "self_attn.q_norm.weight", config.head_dim),
      .k_norm = vector_if(config.qk_norm, "self_attn.k_norm.weight", config.head_dim),
      .post_attention_norm = norm("post_attention_layernorm"),
      .gate = matrix("mlp.gate_proj", ffn, hidden),
      .up = matrix("mlp.up_proj", ffn, hidden),
      .down = matrix("mlp.down_proj", hidden, ffn),
  };
}

}  // namespace

ModelWeightNames NameWeights(const ModelConfig& config) {
  ModelWeightNames names;
  names.embed = {"model.embed_tokens.weight", Shape(config.vocab_size, config.hidden_size)};
  for (int64_t layer = 0; layer < config.num_layers; ++layer) names.layers.push_back(NameLayer(config, layer));
  names.final_norm = {"model.norm.weight", Shape(config.hidden_size)};
  names.head = names.embed;
  if (!config.tie_word_embeddings) names.head.name = "lm_head.weight";
  return names;
}

std::vector<WeightName> ListWeights(const ModelWeightNames& names) {
  std::vector<WeightName> all = {names.embed};
  for (const LayerWeightNames& layer : names.layers) {
    for (const WeightName* weight : {&layer.input_norm, &layer.q, &layer.k, &layer.v, &layer.o,
                                     &layer.post_attention_norm, &layer.gate, &layer.up, &layer.down}) {
      all.push_back(*weight);
    }
    for (const auto* weight :
         {&layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.o_bias, &layer.q_norm, &layer.k_norm}) {
      if (*weight) all.push_back(**weight);
    }
  }
  all.push_back(names.final_norm);
  if (names.head.name != names.embed.name) all.push_back(names.head);
  return all;
}

}  // namespace foretoken::model
