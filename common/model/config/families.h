// SPDX-License-Identifier: Apache-2.0
// What distinguishes the families of models: the names of their classes, the fields that their configuration classes in
// transformers have, and those fields' defaults.
#pragma once

#include <cstdint>
#include <optional>

#include "common/model/config/config.h"

namespace foretoken::model {

// Which layers have the window of the field sliding_window.
enum class WindowRule {
  kNone,
  kAll,      // all, unless the field is null
  kFlagged,  // those from max_window_layers on, or those that layer_types name, if use_sliding_window is set
  kPattern,  // all but each n-th, n of the field sliding_window_pattern, or those that layer_types name
};

// Which fields say what experts a layer has.
enum class ExpertRule {
  kNone,
  kMixtral,  // num_local_experts in all layers, as wide as intermediate_size
  kQwen,     // num_experts of moe_intermediate_size, in layers that decoder_sparse_step and mlp_only_layers leave
  kGlm,      // n_routed_experts of moe_intermediate_size and n_shared_experts, from first_k_dense_replace on
  kGptOss,   // as Mixtral, with biases and a gate of their own
};

struct Family {
  Architecture architecture;
  const char* class_name;
  const char* model_type;

  // Defaults of fields that may be absent.
  int64_t num_heads = 0;  // 0: the field is required, as for the next three
  int64_t num_kv_heads = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  bool may_lack_kv_heads = false;
  double rms_norm_eps = 1e-6;
  bool ties_embeddings = false;
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> eos_token_id;
  double rope_theta = 10000;
  double rotary_part = 1;                    // of a head
  std::optional<double> sliding_rope_theta;  // unset: one rotation for all layers
  WindowRule windows = WindowRule::kNone;
  std::optional<int64_t> window = 4096;
  int64_t window_pattern = 0;  // n of kPattern
  std::optional<double> attention_cap;
  std::optional<double> logit_cap;

  bool attention_bias = false;

  // What no field says.
  bool has_qkv_bias = false;
  bool has_qk_norm = false;
  bool has_plain_output = false;  // attention_bias means q, k and v, and not o
  bool has_outer_norms = false;   // norms of what attention and MLP add, none of what enters them; of all of q and of k
  bool is_gemma = false;          // (1 + w) in norms, norms around each part, the embedding times sqrt(E), gelu
  bool has_fused_projections = false;
  bool has_attention_sinks = false;
  ExpertRule experts = ExpertRule::kNone;

  bool needs_rope_scaling = false;  // which the configuration class has by default

  // The fields that the family knows.
  bool knows_attention_bias = true;
  bool knows_mlp_bias = false;
  bool knows_multipliers = false;  // Granite's
  bool knows_partial_rotation = false;
  bool knows_long_rope = false;
  bool knows_layers_without_rotation = false;
};

inline constexpr Family kFamilies[] = {
    {.architecture = Architecture::kLlama,
     .class_name = "LlamaForCausalLM",
     .model_type = "llama",
     .may_lack_kv_heads = true,
     .bos_token_id = 1,
     .eos_token_id = 2,
     .knows_mlp_bias = true},
    {.architecture = Architecture::kMistral,
     .class_name = "MistralForCausalLM",
     .model_type = "mistral",
     .bos_token_id = 1,
     .eos_token_id = 2,
     .windows = WindowRule::kAll,
     .knows_attention_bias = false},
    {.architecture = Architecture::kQwen2,
     .class_name = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .windows = WindowRule::kFlagged,
     .has_qkv_bias = true},
    {.architecture = Architecture::kQwen3,
     .class_name = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .head_dim = 128,
     .windows = WindowRule::kFlagged,
     .has_qk_norm = true},
    {.architecture = Architecture::kGemma2,
     .class_name = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .head_dim = 256,
     .ties_embeddings = true,
     .bos_token_id = 2,
     .eos_token_id = 1,
     .windows = WindowRule::kPattern,
     .window_pattern = 2,
     .attention_cap = 50,
     .logit_cap = 30,
     .is_gemma = true},
    {.architecture = Architecture::kGemma3,
     .class_name = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .num_heads = 8,
     .num_kv_heads = 4,
     .vocab_size = 262208,
     .max_positions = 131072,
     .head_dim = 256,
     .ties_embeddings = true,
     .bos_token_id = 2,
     .eos_token_id = 1,
     .rope_theta = 1e6,
     .sliding_rope_theta = 10000,
     .windows = WindowRule::kPattern,
     .window_pattern = 6,
     .has_qk_norm = true,
     .is_gemma = true},
    {.architecture = Architecture::kPhi3,
     .class_name = "Phi3ForCausalLM",
     .model_type = "phi3",
     .may_lack_kv_heads = true,
     .rms_norm_eps = 1e-5,
     .bos_token_id = 1,
     .eos_token_id = 32000,
     .windows = WindowRule::kAll,
     .window = std::nullopt,
     .has_fused_projections = true,
     .knows_attention_bias = false,
     .knows_partial_rotation = true,
     .knows_long_rope = true},
    {.architecture = Architecture::kGranite,
     .class_name = "GraniteForCausalLM",
     .model_type = "granite",
     .may_lack_kv_heads = true,
     .bos_token_id = 1,
     .eos_token_id = 2,
     .knows_mlp_bias = true,
     .knows_multipliers = true},
    {.architecture = Architecture::kSmolLm3,
     .class_name = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .ties_embeddings = true,
     .bos_token_id = 128000,
     .eos_token_id = 128001,
     .rope_theta = 2e6,
     .knows_mlp_bias = true,
     .knows_layers_without_rotation = true},
    {.architecture = Architecture::kOlmo2,
     .class_name = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .vocab_size = 50304,
     .max_positions = 2048,
     .may_lack_kv_heads = true,
     .rms_norm_eps = 1e-5,
     .eos_token_id = 50279,
     .has_qk_norm = true,
     .has_outer_norms = true},
    {.architecture = Architecture::kMixtral,
     .class_name = "MixtralForCausalLM",
     .model_type = "mixtral",
     .rms_norm_eps = 1e-5,
     .bos_token_id = 1,
     .eos_token_id = 2,
     .rope_theta = 1e6,
     .windows = WindowRule::kAll,
     .window = std::nullopt,
     .experts = ExpertRule::kMixtral,
     .knows_attention_bias = false},
    {.architecture = Architecture::kQwen3Moe,
     .class_name = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .has_qk_norm = true,
     .experts = ExpertRule::kQwen},
    {.architecture = Architecture::kGlm4Moe,
     .class_name = "Glm4MoeForCausalLM",
     .model_type = "glm4_moe",
     .head_dim = 128,
     .rms_norm_eps = 1e-5,
     .rotary_part = 0.5,
     .has_plain_output = true,
     .experts = ExpertRule::kGlm,
     .knows_partial_rotation = true},
    {.architecture = Architecture::kGptOss,
     .class_name = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .num_heads = 64,
     .num_kv_heads = 8,
     .vocab_size = 201088,
     .max_positions = 131072,
     .head_dim = 64,
     .rms_norm_eps = 1e-5,
     .rope_theta = 150000,
     .windows = WindowRule::kPattern,
     .window = 128,
     .window_pattern = 2,
     .attention_bias = true,
     .has_attention_sinks = true,
     .experts = ExpertRule::kGptOss,
     .needs_rope_scaling = true},
};

}  // namespace foretoken::model
