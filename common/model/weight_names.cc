// SPDX-License-Identifier: Apache-2.0
#include "common/model/weight_names.h"

#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"

namespace foretoken::model {
namespace {

using kernels::Shape;

// Roles that share a stored tensor, or each role's own tensor.
struct Projection {
  const char* name;
  int64_t num_rows;
};

std::vector<WeightName> NameProjections(const std::string& prefix, std::initializer_list<Projection> projections,
                                        const char* fused_name, int64_t num_inputs) {
  std::vector<WeightName> names;
  int64_t num_rows = 0;
  for (const Projection& projection : projections) {
    names.push_back({prefix + (fused_name != nullptr ? fused_name : projection.name) + ".weight",
                     Shape(projection.num_rows, num_inputs), fused_name != nullptr ? num_rows : 0});
    num_rows += projection.num_rows;
  }
  if (fused_name == nullptr) return names;
  for (WeightName& name : names) name.num_stored_rows = num_rows;
  return names;
}

std::vector<ExpertWeightNames> NameExperts(const ModelConfig& config, const std::string& mlp) {
  const ExpertsConfig& experts = config.experts;
  const Shape in(experts.intermediate_size, config.hidden_size);
  const Shape out(config.hidden_size, experts.intermediate_size);
  std::vector<ExpertWeightNames> names;
  for (int64_t expert = 0; expert < experts.num_experts; ++expert) {
    const std::string prefix = absl::StrCat(mlp, "experts.", expert, ".");
    switch (experts.names) {
      case ExpertNames::kGateUpDown:
        names.push_back({.gate_up = {{prefix + "gate_proj.weight", in}, {prefix + "up_proj.weight", in}},
                         .down = {prefix + "down_proj.weight", out}});
        if (!experts.has_biases) break;
        names.back().gate_up_bias = {{prefix + "gate_proj.bias", Shape(in[0])},
                                     {prefix + "up_proj.bias", Shape(in[0])}};
        names.back().down_bias = WeightName{prefix + "down_proj.bias", Shape(out[0])};
        break;
      case ExpertNames::kMixtral:
        names.push_back(
            {.gate_up = {{prefix + "w1.weight", in}, {prefix + "w3.weight", in}}, .down = {prefix + "w2.weight", out}});
        break;
      // The next two are stored in stacks, which a checkpoint splits (common/weights/expert_stacks.h).
      case ExpertNames::kFused:
        names.push_back({.gate_up = NameProjections(prefix, {{"gate_proj", in[0]}, {"up_proj", in[0]}}, "gate_up_proj",
                                                    config.hidden_size),
                         .down = {prefix + "down_proj.weight", out}});
        break;
      case ExpertNames::kGptOss:
        names.push_back({.gate_up = {{prefix + "gate_up_proj.weight", Shape(2 * in[0], in[1])}},
                         .gate_up_bias = {{prefix + "gate_up_proj.bias", Shape(2 * in[0])}},
                         .down = {prefix + "down_proj.weight", out},
                         .down_bias = WeightName{prefix + "down_proj.bias", Shape(out[0])}});
        break;
    }
  }
  return names;
}

LayerWeightNames NameLayer(const ModelConfig& config, int64_t layer) {
  const int64_t hidden = config.hidden_size;
  const int64_t q_size = config.num_heads * config.head_dim;
  const int64_t kv_size = config.num_kv_heads * config.head_dim;
  const int64_t ffn = config.mlp_size(layer);
  const std::string prefix = absl::StrCat(config.prefixes.body, "layers.", layer, ".");
  const auto vector_if = [&](bool is_present, const char* role, int64_t size) {
    return is_present ? std::optional(WeightName{prefix + role, Shape(size)}) : std::nullopt;
  };
  const bool is_fused = config.fused_projections;
  const auto qkv =
      NameProjections(prefix + "self_attn.", {{"q_proj", q_size}, {"k_proj", kv_size}, {"v_proj", kv_size}},
                      is_fused ? "qkv_proj" : nullptr, hidden);
  const std::string mlp = prefix + (config.has_experts(layer) ? "mlp.shared_experts." : "mlp.");
  const auto gate_up =
      NameProjections(mlp, {{"gate_proj", ffn}, {"up_proj", ffn}}, is_fused ? "gate_up_proj" : nullptr, hidden);
  LayerWeightNames names = {
      .input_norm = vector_if(config.pre_norms, "input_layernorm.weight", hidden),
      .q = qkv[0],
      .k = qkv[1],
      .v = qkv[2],
      .o = {prefix + "self_attn.o_proj.weight", Shape(hidden, q_size)},
      .q_bias = vector_if(config.attention_bias, "self_attn.q_proj.bias", q_size),
      .k_bias = vector_if(config.attention_bias, "self_attn.k_proj.bias", kv_size),
      .v_bias = vector_if(config.attention_bias, "self_attn.v_proj.bias", kv_size),
      .o_bias = vector_if(config.attention_output_bias, "self_attn.o_proj.bias", hidden),
      .q_norm = vector_if(config.qk_norm, "self_attn.q_norm.weight", config.whole_qk_norm ? q_size : config.head_dim),
      .k_norm = vector_if(config.qk_norm, "self_attn.k_norm.weight", config.whole_qk_norm ? kv_size : config.head_dim),
      .sinks = vector_if(config.attention_sinks, "self_attn.sinks", config.num_heads),
      .attention_post_norm = vector_if(config.post_norms, "post_attention_layernorm.weight", hidden),
      .mlp_norm =
          vector_if(config.pre_norms,
                    config.post_norms ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight", hidden),
      .gate = gate_up[0],
      .up = gate_up[1],
      .down = {mlp + "down_proj.weight", Shape(hidden, ffn)},
      .gate_bias = vector_if(config.mlp_bias, "mlp.gate_proj.bias", ffn),
      .up_bias = vector_if(config.mlp_bias, "mlp.up_proj.bias", ffn),
      .down_bias = vector_if(config.mlp_bias, "mlp.down_proj.bias", hidden),
      .mlp_post_norm = vector_if(config.post_norms, "post_feedforward_layernorm.weight", hidden),
  };
  if (!config.has_experts(layer)) return names;
  const ExpertsConfig& experts = config.experts;
  const std::string sparse = prefix + (experts.names == ExpertNames::kMixtral ? "block_sparse_moe." : "mlp.");
  if (ffn == 0) names.gate = names.up = names.down = {};
  const std::string router = experts.names == ExpertNames::kGptOss ? "router" : "gate";
  names.router = {sparse + router + ".weight", Shape(experts.num_experts, hidden)};
  if (experts.has_biases) names.router_bias = {sparse + router + ".bias", Shape(experts.num_experts)};
  names.choice_bias = vector_if(experts.has_choice_bias, "mlp.gate.e_score_correction_bias", experts.num_experts);
  names.experts = NameExperts(config, sparse);
  return names;
}

std::vector<WeightName> ListBiases(const ExpertWeightNames& expert) {
  std::vector<WeightName> biases = expert.gate_up_bias;
  if (expert.down_bias) biases.push_back(*expert.down_bias);
  return biases;
}

}  // namespace

ModelWeightNames NameWeights(const ModelConfig& config) {
  ModelWeightNames names;
  names.embed = {config.prefixes.body + "embed_tokens.weight", Shape(config.vocab_size, config.hidden_size)};
  for (int64_t layer = 0; layer < config.num_layers; ++layer) names.layers.push_back(NameLayer(config, layer));
  names.final_norm = {config.prefixes.body + "norm.weight", Shape(config.hidden_size)};
  names.head = names.embed;
  if (!config.tie_word_embeddings) names.head.name = config.prefixes.head + "lm_head.weight";
  return names;
}

WeightName WeightName::stored() const {
  WeightName whole = {name, shape};
  whole.shape.dims[0] = num_stored_rows.value_or(shape[0]);
  return whole;
}

std::vector<WeightName> ListMatrices(const LayerWeightNames& layer) {
  std::vector<WeightName> all;
  const auto add = [&](std::initializer_list<const WeightName*> roles) {
    for (const WeightName* role : roles) {
      if (role->first_row == 0) all.push_back(role->stored());
    }
  };
  add({&layer.q, &layer.k, &layer.v, &layer.o});
  if (!layer.gate.name.empty()) add({&layer.gate, &layer.up, &layer.down});
  for (const ExpertWeightNames& expert : layer.experts) {
    for (const WeightName& part : expert.gate_up) add({&part});
    add({&expert.down});
  }
  return all;
}

std::vector<WeightName> ListExperts(const LayerWeightNames& layer) {
  std::vector<WeightName> all;
  for (const ExpertWeightNames& expert : layer.experts) {
    for (const WeightName& part : expert.gate_up) {
      if (part.first_row == 0) all.push_back(part.stored());
    }
    all.push_back(expert.down);
    for (const WeightName& bias : ListBiases(expert)) all.push_back(bias);
  }
  return all;
}

std::vector<WeightName> ListWeights(const ModelWeightNames& names) {
  std::vector<WeightName> all = {names.embed};
  for (const LayerWeightNames& layer : names.layers) {
    if (layer.input_norm) all.push_back(*layer.input_norm);
    for (WeightName& matrix : ListMatrices(layer)) all.push_back(std::move(matrix));
    if (layer.mlp_norm) all.push_back(*layer.mlp_norm);
    for (const auto* weight :
         {&layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.o_bias, &layer.q_norm, &layer.k_norm, &layer.sinks,
          &layer.attention_post_norm, &layer.router, &layer.router_bias, &layer.choice_bias, &layer.gate_bias,
          &layer.up_bias, &layer.down_bias, &layer.mlp_post_norm}) {
      if (*weight) all.push_back(**weight);
    }
    for (const ExpertWeightNames& expert : layer.experts) {
      for (const WeightName& bias : ListBiases(expert)) all.push_back(bias);
    }
  }
  all.push_back(names.final_norm);
  if (names.head.name != names.embed.name) all.push_back(names.head);
  return all;
}

}  // namespace foretoken::model
