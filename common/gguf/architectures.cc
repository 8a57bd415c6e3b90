// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/architectures.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace foretoken::gguf {
namespace {

constexpr TensorRole kOfModel[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};

// Of a layer. An architecture has some of these.
constexpr TensorRole kAttention[] = {
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
};
constexpr TensorRole kBiases[] = {
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
};
constexpr TensorRole kOutputBias[] = {{"attn_output.bias", "self_attn.o_proj.bias"}};
constexpr TensorRole kSinks[] = {{"attn_sinks.weight", "self_attn.sinks"}};
constexpr TensorRole kHeadNorms[] = {
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
};
constexpr TensorRole kNorms[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
};
// The same under another name.
constexpr TensorRole kNormsByAttention[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
};
// Of what attention and the MLP add.
constexpr TensorRole kOuterNorms[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
};
// Of what enters them, beside outer norms.
constexpr TensorRole kInnerNorms[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
};
constexpr TensorRole kMlp[] = {
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
};
constexpr TensorRole kMlpBiases[] = {
    {"ffn_gate.bias", "mlp.gate_proj.bias"},
    {"ffn_up.bias", "mlp.up_proj.bias"},
    {"ffn_down.bias", "mlp.down_proj.bias"},
};
constexpr TensorRole kFused[] = {
    {"attn_qkv.weight", "self_attn.qkv_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"ffn_up.weight", "mlp.gate_up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
};
constexpr TensorRole kExperts[] = {
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    {"ffn_gate_exps.weight", "mlp.experts.gate_proj"},
    {"ffn_up_exps.weight", "mlp.experts.up_proj"},
    {"ffn_down_exps.weight", "mlp.experts.down_proj"},
};
// In place of gate and up.
constexpr TensorRole kFusedExperts[] = {{"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"}};
constexpr TensorRole kExpertBiases[] = {
    {"ffn_gate_inp.bias", "mlp.gate.bias"},
    {"ffn_gate_exps.bias", "mlp.experts.gate_proj_bias"},
    {"ffn_up_exps.bias", "mlp.experts.up_proj_bias"},
    {"ffn_down_exps.bias", "mlp.experts.down_proj_bias"},
};
constexpr TensorRole kSharedExpert[] = {
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"},
};
// Of layers for multi-token prediction, which are not read.
constexpr TensorRole kPrediction[] = {
    {"nextn.eh_proj.weight", "eh_proj.weight"},
    {"nextn.enorm.weight", "enorm.weight"},
    {"nextn.hnorm.weight", "hnorm.weight"},
    {"nextn.embed_tokens.weight", "embed_tokens.weight"},
    {"nextn.shared_head_head.weight", "shared_head.head.weight"},
    {"nextn.shared_head_norm.weight", "shared_head.norm.weight"},
};

constexpr KeyOfField kWindow = {".attention.sliding_window", "sliding_window", true};
constexpr KeyOfField kLogitCap = {".final_logit_softcapping", "final_logit_softcapping", false};
constexpr KeyOfField kNumChosen = {".expert_used_count", "num_experts_per_tok", true};
constexpr KeyOfField kExpertSize = {".expert_feed_forward_length", "moe_intermediate_size", true};

std::vector<Architecture> MakeArchitectures() {
  return {
      {.name = "llama",  // Mistral's files, too
       .class_name = "LlamaForCausalLM",
       .model_type = "llama",
       .roles = {kAttention, kBiases, kOutputBias, kNorms, kMlp, kMlpBiases},
       .interleaves_heads = true,
       .has_declared_biases = true},
      {.name = "llama",
       .class_name = "MixtralForCausalLM",
       .model_type = "mixtral",
       .roles = {kAttention, kNorms, kExperts, kFusedExperts},
       .keys = {{".expert_count", "num_local_experts", true}, kNumChosen},
       .weighting = ExpertWeighting::kSoftmax,
       .interleaves_heads = true},
      {.name = "qwen2",
       .class_name = "Qwen2ForCausalLM",
       .model_type = "qwen2",
       .roles = {kAttention, kBiases, kNorms, kMlp}},
      {.name = "qwen3",
       .class_name = "Qwen3ForCausalLM",
       .model_type = "qwen3",
       .roles = {kAttention, kBiases, kOutputBias, kHeadNorms, kNorms, kMlp},
       .has_declared_biases = true},
      {.name = "qwen3moe",
       .class_name = "Qwen3MoeForCausalLM",
       .model_type = "qwen3_moe",
       .roles = {kAttention, kBiases, kOutputBias, kHeadNorms, kNorms, kExperts, kFusedExperts},
       .keys = {{".expert_count", "num_experts", true}, kNumChosen, kExpertSize},
       .weighting = ExpertWeighting::kSoftmax,
       .has_declared_biases = true},
      {.name = "gemma2",
       .class_name = "Gemma2ForCausalLM",
       .model_type = "gemma2",
       .roles = {kAttention, kInnerNorms, kOuterNorms, kMlp},
       .keys = {kWindow, kLogitCap, {".attn_logit_softcapping", "attn_logit_softcapping", false}},
       .layers_with_wide_scale = 46},
      {.name = "gemma3",
       .class_name = "Gemma3ForCausalLM",
       .model_type = "gemma3_text",
       .roles = {kAttention, kHeadNorms, kInnerNorms, kOuterNorms, kMlp},
       .keys = {kWindow, kLogitCap, {".rope.freq_base_swa", "rope_local_base_freq", false}},
       .layers_with_wide_scale = 62},
      {.name = "phi3",
       .class_name = "Phi3ForCausalLM",
       .model_type = "phi3",
       .roles = {kFused, kNorms},
       .keys = {kWindow},
       .may_turn_parts = true},
      {.name = "granite",
       .class_name = "GraniteForCausalLM",
       .model_type = "granite",
       .roles = {kAttention, kBiases, kOutputBias, kNorms, kMlp, kMlpBiases},
       .keys = {{".attention.scale", "attention_multiplier", false},
                {".embedding_scale", "embedding_multiplier", false},
                {".residual_scale", "residual_multiplier", false},
                {".logit_scale", "logits_scaling", false}},
       .interleaves_heads = true,
       .has_declared_biases = true},
      {.name = "smollm3",
       .class_name = "SmolLM3ForCausalLM",
       .model_type = "smollm3",
       .roles = {kAttention, kBiases, kOutputBias, kNorms, kMlp, kMlpBiases},
       .interleaves_heads = true,
       .has_declared_biases = true},
      {.name = "olmo2",
       .class_name = "Olmo2ForCausalLM",
       .model_type = "olmo2",
       .roles = {kAttention, kBiases, kOutputBias, kHeadNorms, kOuterNorms, kMlp},
       .has_declared_biases = true},
      {.name = "glm4moe",
       .class_name = "Glm4MoeForCausalLM",
       .model_type = "glm4_moe",
       .roles = {kAttention, kBiases, kHeadNorms, kNormsByAttention, kMlp, kExperts, kFusedExperts, kSharedExpert,
                 kPrediction},
       .keys = {{".expert_count", "n_routed_experts", true},
                {".expert_shared_count", "n_shared_experts", true},
                {".leading_dense_block_count", "first_k_dense_replace", true},
                {".expert_weights_scale", "routed_scaling_factor", false},
                {".nextn_predict_layers", "num_nextn_predict_layers", true},
                kNumChosen,
                kExpertSize},
       .weighting = ExpertWeighting::kSigmoid,
       .may_turn_parts = true,
       .has_declared_biases = true},
      {.name = "gpt-oss",
       .class_name = "GptOssForCausalLM",
       .model_type = "gpt_oss",
       .roles = {kAttention, kBiases, kOutputBias, kSinks, kNormsByAttention, kExperts, kExpertBiases},
       .keys = {{".expert_count", "num_local_experts", true},
                {".expert_feed_forward_length", "intermediate_size", true},
                kNumChosen,
                kWindow},
       .weighting = ExpertWeighting::kSoftmaxOfChosen,
       .rounds_yarn = false,
       .has_declared_biases = true},
  };
}

const std::vector<Architecture>& Architectures() {
  static const auto& all = *new std::vector<Architecture>(MakeArchitectures());
  return all;
}

struct LayerTensor {
  absl::string_view layer;  // digits
  absl::string_view role;
};

// "blk.12.attn_q.weight"
std::optional<LayerTensor> ParseLayerTensor(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "blk.")) return std::nullopt;
  const size_t end = name.find('.');
  const absl::string_view layer = name.substr(0, end);
  const bool is_number = !layer.empty() && layer.size() <= 5 && std::ranges::all_of(layer, absl::ascii_isdigit) &&
                         (layer == "0" || layer[0] != '0');
  if (end == absl::string_view::npos || !is_number) return std::nullopt;
  return LayerTensor{.layer = layer, .role = name.substr(end + 1)};
}

std::optional<absl::string_view> Find(std::span<const TensorRole> roles, absl::string_view name) {
  const auto found = std::ranges::find(roles, name, &TensorRole::gguf);
  return found == roles.end() ? std::nullopt : std::optional(found->hugging_face);
}

}  // namespace

absl::StatusOr<const Architecture*> FindArchitecture(const Metadata& metadata) {
  constexpr const char* kKey = "general.architecture";
  FT_ASSIGN_OR_RETURN(const std::string name, metadata.Required<std::string>(kKey));
  FT_ASSIGN_OR_RETURN(const int64_t num_experts, metadata.OrDefault<int64_t>(name + ".expert_count", 0));
  const Architecture* found = nullptr;
  std::vector<absl::string_view> known;
  for (const Architecture& architecture : Architectures()) {
    if (known.empty() || known.back() != architecture.name) known.emplace_back(architecture.name);
    if (name != architecture.name) continue;
    if (architecture.has_experts() == (num_experts > 0)) return &architecture;
    found = &architecture;
  }
  if (found != nullptr) return found;
  return metadata.Error(kKey, "expected one of ", absl::StrJoin(known, ", "), ", got ", name);
}

std::optional<std::string> HuggingFaceName(const Architecture& architecture, absl::string_view name) {
  if (const auto of_model = Find(kOfModel, name)) return std::string(*of_model);
  const std::optional<LayerTensor> tensor = ParseLayerTensor(name);
  if (!tensor) return std::nullopt;
  for (const std::span<const TensorRole> roles : architecture.roles) {
    if (const auto role = Find(roles, tensor->role)) return absl::StrCat("model.layers.", tensor->layer, ".", *role);
  }
  return std::nullopt;
}

bool IsRotated(absl::string_view name) {
  const std::optional<LayerTensor> tensor = ParseLayerTensor(name);
  return tensor && (absl::StartsWith(tensor->role, "attn_q.") || absl::StartsWith(tensor->role, "attn_k."));
}

absl::StatusOr<int64_t> HeadDim(const Metadata& metadata, const Architecture& architecture) {
  const std::string heads_key = absl::StrCat(architecture.name, ".attention.head_count"),
                    length_key = absl::StrCat(architecture.name, ".attention.key_length");
  FT_ASSIGN_OR_RETURN(const int64_t width,
                      metadata.Required<int64_t>(absl::StrCat(architecture.name, ".embedding_length")));
  FT_ASSIGN_OR_RETURN(const int64_t num_heads, metadata.Required<int64_t>(heads_key));
  FT_ASSIGN_OR_RETURN(const auto given, metadata.Optional<int64_t>(length_key));
  if (!given && (num_heads < 1 || width % num_heads != 0)) {
    return metadata.Error(heads_key, "expected a divisor of embedding_length ", width, ", got ", num_heads);
  }
  const int64_t head_dim = given ? *given : width / num_heads;
  if (head_dim >= 2 && head_dim % 2 == 0) return head_dim;
  return metadata.Error(given ? length_key : heads_key, "expected heads of an even number of inputs, got ", head_dim);
}

}  // namespace foretoken::gguf
