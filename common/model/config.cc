// SPDX-License-Identifier: Apache-2.0
#include "common/model/config.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json_fields.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_model.h"
#include "common/gguf/model_files.h"
#include "common/model/rope_config.h"

namespace foretoken::model {
namespace {

struct ArchitectureNames {
  Architecture architecture;
  const char* class_name;
  const char* model_type;
};

constexpr const char* kFileName = "config.json";

constexpr ArchitectureNames kArchitectures[] = {
    {Architecture::kLlama, "LlamaForCausalLM", "llama"},
    {Architecture::kMistral, "MistralForCausalLM", "mistral"},
    {Architecture::kQwen2, "Qwen2ForCausalLM", "qwen2"},
    {Architecture::kQwen3, "Qwen3ForCausalLM", "qwen3"},
};

// The largest sizes that a configuration may have. The bytes of all weights of the largest model fit into 63 bits.
constexpr int64_t kMaxWidth = int64_t{1} << 22;
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxHeads = int64_t{1} << 12;
constexpr int64_t kMaxLayers = int64_t{1} << 12;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

absl::StatusOr<Architecture> ReadArchitecture(const JsonFields& fields) {
  FT_ASSIGN_OR_RETURN(const auto classes, fields.Optional<std::vector<std::string>>("architectures"));
  FT_ASSIGN_OR_RETURN(const auto model_type, fields.Optional<std::string>("model_type"));
  for (const ArchitectureNames& names : kArchitectures) {
    const bool class_fits = !classes || (classes->size() == 1 && classes->front() == names.class_name);
    const bool type_fits = !model_type || *model_type == names.model_type;
    if ((classes || model_type) && class_fits && type_fits) return names.architecture;
  }
  const auto append_class = [](std::string* out, const ArchitectureNames& names) { *out += names.class_name; };
  return fields.Error("architectures", "expects one of ", absl::StrJoin(kArchitectures, ", ", append_class), ", got ",
                      fields.Text("architectures"), " with model_type ", fields.Text("model_type"));
}

// Fields of related architectures, each with the one value that changes nothing.
absl::Status RefuseWhatIsNotImplemented(const JsonFields& fields, Architecture architecture) {
  static constexpr std::pair<const char*, const char*> kNeutralValues[] = {
      {"mlp_bias", "false"},
      {"partial_rotary_factor", "1.0"},
      {"final_logit_softcapping", "null"},
      {"attn_logit_softcapping", "null"},
      {"query_pre_attn_scalar", "null"},
      {"attention_multiplier", "null"},
      {"logits_scaling", "1.0"},
      {"logit_scale", "1.0"},
      {"embedding_multiplier", "1.0"},
      {"residual_multiplier", "1.0"},
      {"use_qk_norm", "false"},
      {"clip_qkv", "null"},
      {"no_rope_layers", "null"},
      {"attention_chunk_size", "null"},
      {"num_local_experts", "null"},
      {"num_experts", "null"},
  };
  for (const auto& [name, neutral] : kNeutralValues) {
    const std::string text = fields.Text(name);
    const bool is_neutral = text == "null" || text == neutral || absl::StrCat(text, ".0") == neutral;
    if (!is_neutral) return fields.Error(name, "is not supported: expects ", neutral, ", got ", text);
  }
  FT_ASSIGN_OR_RETURN(const auto activation, fields.OrDefault<std::string>("hidden_act", "silu"));
  if (activation != "silu") return fields.Error("hidden_act", "expects silu, got ", activation);
  FT_ASSIGN_OR_RETURN(const bool attention_bias, fields.OrDefault<bool>("attention_bias", false));
  if (attention_bias && architecture == Architecture::kMistral) {
    return fields.Error("attention_bias", "expects false for Mistral, got true");
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ReadSize(const JsonFields& fields, const std::string& name, int64_t max) {
  FT_ASSIGN_OR_RETURN(const int64_t size, fields.Required<int64_t>(name));
  if (size < 1 || size > max) return fields.Error(name, "expects an integer from 1 to ", max, ", got ", size);
  return size;
}

absl::Status ReadSizes(const JsonFields& fields, ModelConfig& config) {
  FT_ASSIGN_OR_RETURN(config.hidden_size, ReadSize(fields, "hidden_size", kMaxWidth));
  FT_ASSIGN_OR_RETURN(config.intermediate_size, ReadSize(fields, "intermediate_size", kMaxWidth));
  FT_ASSIGN_OR_RETURN(config.num_layers, ReadSize(fields, "num_hidden_layers", kMaxLayers));
  FT_ASSIGN_OR_RETURN(config.vocab_size, ReadSize(fields, "vocab_size", kMaxVocabulary));
  FT_ASSIGN_OR_RETURN(config.max_position_embeddings, ReadSize(fields, "max_position_embeddings", kMaxPositions));
  FT_ASSIGN_OR_RETURN(config.rms_norm_eps, fields.OrDefault<double>("rms_norm_eps", config.rms_norm_eps));
  if (config.rms_norm_eps <= 0) {
    return fields.Error("rms_norm_eps", "expects a number above 0, got ", config.rms_norm_eps);
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const JsonFields& fields, ModelConfig& config) {
  FT_ASSIGN_OR_RETURN(config.num_heads, ReadSize(fields, "num_attention_heads", kMaxHeads));
  // Null means as many key/value heads as heads. So does an absent field in a Llama configuration from before grouped
  // heads.
  config.num_kv_heads = config.num_heads;
  const bool may_be_absent = config.architecture == Architecture::kLlama || fields.IsNull("num_key_value_heads");
  if (fields.Has("num_key_value_heads") || !may_be_absent) {
    FT_ASSIGN_OR_RETURN(config.num_kv_heads, ReadSize(fields, "num_key_value_heads", kMaxHeads));
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    return fields.Error("num_key_value_heads", "expects a divisor of num_attention_heads ", config.num_heads, ", got ",
                        config.num_kv_heads);
  }

  if (fields.Has("head_dim")) {
    FT_ASSIGN_OR_RETURN(config.head_dim, ReadSize(fields, "head_dim", kMaxHeads));
  } else if (config.architecture == Architecture::kQwen3) {
    config.head_dim = 128;
  } else if (config.hidden_size % config.num_heads == 0) {
    config.head_dim = config.hidden_size / config.num_heads;
  } else {
    return fields.Error("num_attention_heads", "expects a divisor of hidden_size ", config.hidden_size,
                        " where head_dim is absent, got ", config.num_heads);
  }
  if (config.head_dim % 2 != 0) return fields.Error("head_dim", "expects an even number, got ", config.head_dim);
  return absl::OkStatus();
}

// The window of some layers, or of none.
absl::StatusOr<std::optional<int64_t>> ReadWindow(const JsonFields& fields, Architecture architecture) {
  if (architecture == Architecture::kLlama) return std::optional<int64_t>();
  if (architecture != Architecture::kMistral) {
    FT_ASSIGN_OR_RETURN(const bool is_used, fields.OrDefault<bool>("use_sliding_window", false));
    if (!is_used) return std::optional<int64_t>();
  }
  if (fields.IsNull("sliding_window")) return std::optional<int64_t>();
  FT_ASSIGN_OR_RETURN(const int64_t window, fields.OrDefault<int64_t>("sliding_window", 4096));
  if (window < 1 || window > kMaxPositions) {
    return fields.Error("sliding_window", "expects an integer from 1 to ", kMaxPositions, ", got ", window);
  }
  return std::optional<int64_t>(window);
}

// For Qwen, layer_types decide which layers have the window. For other architectures they must not contradict it.
absl::Status ReadSlidingWindows(const JsonFields& fields, ModelConfig& config) {
  FT_ASSIGN_OR_RETURN(const std::optional<int64_t> window, ReadWindow(fields, config.architecture));
  const bool is_qwen = config.architecture == Architecture::kQwen2 || config.architecture == Architecture::kQwen3;
  int64_t num_full_layers = 0;
  if (is_qwen) {
    FT_ASSIGN_OR_RETURN(num_full_layers, fields.OrDefault<int64_t>("max_window_layers", 28));
  }
  config.sliding_windows.assign(static_cast<size_t>(config.num_layers), std::nullopt);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (layer >= num_full_layers) config.sliding_windows[static_cast<size_t>(layer)] = window;
  }

  FT_ASSIGN_OR_RETURN(const auto types, fields.Optional<std::vector<std::string>>("layer_types"));
  if (!types) return absl::OkStatus();
  if (types->size() != config.sliding_windows.size()) {
    return fields.Error("layer_types", "expects ", config.num_layers, " entries, got ", types->size());
  }
  for (size_t layer = 0; layer < types->size(); ++layer) {
    const std::string& type = (*types)[layer];
    const bool is_sliding = type == "sliding_attention";
    if (!is_sliding && type != "full_attention") {
      return fields.Error("layer_types", "expects full_attention or sliding_attention, got ", type, " for layer ",
                          layer);
    }
    const bool is_possible = is_qwen ? window || !is_sliding : is_sliding == config.sliding_windows[layer].has_value();
    if (!is_possible) {
      return fields.Error("layer_types", "says ", type, " for layer ", layer, ", which contradicts sliding_window ",
                          fields.Text("sliding_window"), " of this architecture");
    }
    config.sliding_windows[layer] = is_sliding ? window : std::nullopt;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> ReadTokenIds(const JsonFields& fields, const std::string& name,
                                                  std::vector<int64_t> default_ids, int64_t vocab_size) {
  if (fields.IsNull(name)) return std::vector<int64_t>();
  FT_ASSIGN_OR_RETURN(std::vector<int64_t> ids, fields.OrDefault(name, std::move(default_ids)));
  for (const int64_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return fields.Error(name, "expects ids from 0 to ", vocab_size - 1, ", the last of the vocabulary, got ", id);
    }
  }
  return ids;
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text, absl::string_view source) {
  FT_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Parse(text, source));
  ModelConfig config;
  FT_ASSIGN_OR_RETURN(config.architecture, ReadArchitecture(fields));
  FT_RETURN_IF_ERROR(RefuseWhatIsNotImplemented(fields, config.architecture));
  FT_RETURN_IF_ERROR(ReadSizes(fields, config));
  FT_RETURN_IF_ERROR(ReadHeads(fields, config));
  FT_RETURN_IF_ERROR(ReadSlidingWindows(fields, config));
  FT_ASSIGN_OR_RETURN(RopeSettings rope, ReadRopeSettings(fields, config.max_position_embeddings, kMaxPositions));
  config.rope = rope.rope;
  if (const auto* divided = std::get_if<DivisorScaling>(&config.rope.scaling);
      divided != nullptr && static_cast<int64_t>(divided->divisors.size()) != config.head_dim / 2) {
    return fields.Error("rope_scaling", "expects ", config.head_dim / 2, " divisors, one per pair of a head, got ",
                        divided->divisors.size());
  }
  config.max_position_embeddings = rope.max_positions;
  FT_ASSIGN_OR_RETURN(config.tie_word_embeddings, fields.OrDefault<bool>("tie_word_embeddings", false));

  FT_ASSIGN_OR_RETURN(const bool attention_bias, fields.OrDefault<bool>("attention_bias", false));
  const bool is_qwen2 = config.architecture == Architecture::kQwen2;
  config.attention_bias = attention_bias || is_qwen2;
  config.attention_output_bias = attention_bias && !is_qwen2;
  config.qk_norm = config.architecture == Architecture::kQwen3;

  const bool is_llama_like =
      config.architecture == Architecture::kLlama || config.architecture == Architecture::kMistral;
  using Ids = std::vector<int64_t>;
  FT_ASSIGN_OR_RETURN(config.bos_token_ids,
                      ReadTokenIds(fields, "bos_token_id", is_llama_like ? Ids{1} : Ids{}, config.vocab_size));
  FT_ASSIGN_OR_RETURN(config.eos_token_ids,
                      ReadTokenIds(fields, "eos_token_id", is_llama_like ? Ids{2} : Ids{}, config.vocab_size));
  FT_ASSIGN_OR_RETURN(config.dtype, fields.Optional<std::string>(fields.Has("dtype") ? "dtype" : "torch_dtype"));
  FT_ASSIGN_OR_RETURN(config.quantization, quantization::ReadQuantizationConfig(fields));
  return config;
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory) {
  FT_ASSIGN_OR_RETURN(const std::string text, gguf::ReadModelFile(directory, kFileName));
  FT_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(text, gguf::ModelFileName(directory, kFileName)));
  if (!config.quantization.is_declared && !gguf::IsGgufPath(directory)) {
    FT_ASSIGN_OR_RETURN(config.quantization, quantization::LoadQuantizationFile(directory));
  }
  return config;
}

}  // namespace foretoken::model
