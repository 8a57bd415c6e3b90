// SPDX-License-Identifier: Apache-2.0
#include "common/model/config/config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json_fields.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_model.h"
#include "common/gguf/model_files.h"
#include "common/model/config/bounds.h"
#include "common/model/config/experts_config.h"
#include "common/model/config/families.h"
#include "common/model/config/rope_config.h"
#include "kernels/dtype.h"

namespace foretoken::model {
namespace {

constexpr const char* kFileName = "config.json";

absl::StatusOr<const Family*> ReadFamily(const JsonFields& fields) {
  FT_ASSIGN_OR_RETURN(const auto classes, fields.Optional<std::vector<std::string>>("architectures"));
  FT_ASSIGN_OR_RETURN(const auto model_type, fields.Optional<std::string>("model_type"));
  for (const Family& family : kFamilies) {
    const bool class_fits = !classes || (classes->size() == 1 && classes->front() == family.class_name);
    const bool type_fits = !model_type || *model_type == family.model_type;
    if ((classes || model_type) && class_fits && type_fits) return &family;
  }
  const auto append_class = [](std::string* out, const Family& family) { *out += family.class_name; };
  return fields.Error("architectures", "expects one of ", absl::StrJoin(kFamilies, ", ", append_class), ", got ",
                      fields.Text("architectures"), " with model_type ", fields.Text("model_type"));
}

// Fields that some families know, each with the one value that changes nothing.
absl::Status RefuseWhatIsNotKnown(const JsonFields& fields, const Family& family) {
  struct Field {
    const char* name;
    const char* neutral;
    bool is_known = false;
  };
  const Field all[] = {
      {"attention_bias", "false", family.knows_attention_bias},
      {"mlp_bias", "false", family.knows_mlp_bias},
      {"partial_rotary_factor", "1.0", family.knows_partial_rotation},
      {"final_logit_softcapping", "null", family.is_gemma},
      {"attn_logit_softcapping", "null", family.is_gemma},
      {"query_pre_attn_scalar", "null", family.is_gemma},
      {"attention_multiplier", "null", family.knows_multipliers},
      {"logits_scaling", "1.0", family.knows_multipliers},
      {"embedding_multiplier", "1.0", family.knows_multipliers},
      {"residual_multiplier", "1.0", family.knows_multipliers},
      {"no_rope_layers", "null", family.knows_layers_without_rotation},
      {"logit_scale", "1.0"},
      {"use_qk_norm", family.has_qk_norm ? "true" : "false", family.experts == ExpertRule::kGlm},
      {"qkv_bias", family.has_qkv_bias ? "true" : "false"},
      {"shared_expert_intermediate_size", "0"},
      {"use_bidirectional_attention", "false"},
      {"clip_qkv", "null"},
      {"attention_chunk_size", "null"},
      {"num_local_experts", "null", family.experts != ExpertRule::kNone},
      {"swiglu_alpha", "1.702"},
      {"swiglu_limit", "null", family.experts == ExpertRule::kGptOss},
      {"num_experts", "null", family.experts == ExpertRule::kQwen},
      {"n_routed_experts", "null", family.experts == ExpertRule::kGlm},
      {"n_group", "1"},
      {"use_sliding_window", "false", family.windows != WindowRule::kNone},
      {"rope_local_base_freq", "null", family.sliding_rope_theta.has_value()},
  };
  for (const Field& field : all) {
    const std::string text = fields.Text(field.name);
    const bool is_neutral = text == "null" || text == field.neutral || absl::StrCat(text, ".0") == field.neutral;
    if (!field.is_known && !is_neutral) {
      return fields.Error(field.name, "is not supported for ", family.class_name, ": expects ", field.neutral, ", got ",
                          text);
    }
  }
  const char* activation_field =
      family.is_gemma && fields.Has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string expected = family.is_gemma ? "gelu_pytorch_tanh" : "silu";
  FT_ASSIGN_OR_RETURN(const auto activation, fields.OrDefault<std::string>(activation_field, expected));
  if (activation != expected) return fields.Error(activation_field, "expects ", expected, ", got ", activation);
  return absl::OkStatus();
}

absl::Status ReadSizes(const JsonFields& fields, const Family& family, ModelConfig& config) {
  FT_ASSIGN_OR_RETURN(config.hidden_size, ReadSize(fields, "hidden_size", kMaxWidth));
  FT_ASSIGN_OR_RETURN(config.intermediate_size, ReadSize(fields, "intermediate_size", kMaxWidth));
  FT_ASSIGN_OR_RETURN(config.num_layers, ReadSize(fields, "num_hidden_layers", kMaxLayers));
  FT_ASSIGN_OR_RETURN(config.num_prediction_layers, fields.OrDefault<int64_t>("num_nextn_predict_layers", 0));
  if (config.num_prediction_layers < 0 || config.num_prediction_layers > kMaxLayers) {
    return fields.Error("num_nextn_predict_layers", "expects an integer from 0 to ", kMaxLayers, ", got ",
                        config.num_prediction_layers);
  }
  FT_ASSIGN_OR_RETURN(config.vocab_size, ReadSize(fields, "vocab_size", kMaxVocabulary, family.vocab_size));
  FT_ASSIGN_OR_RETURN(config.max_position_embeddings,
                      ReadSize(fields, "max_position_embeddings", kMaxPositions, family.max_positions));
  FT_ASSIGN_OR_RETURN(config.rms_norm_eps, fields.OrDefault<double>("rms_norm_eps", family.rms_norm_eps));
  if (config.rms_norm_eps <= 0) {
    return fields.Error("rms_norm_eps", "expects a number above 0, got ", config.rms_norm_eps);
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const JsonFields& fields, const Family& family, ModelConfig& config) {
  FT_ASSIGN_OR_RETURN(config.num_heads, ReadSize(fields, "num_attention_heads", kMaxHeads, family.num_heads));
  // Null means as many key/value heads as heads. So does an absent field in a configuration from before grouped heads.
  config.num_kv_heads = config.num_heads;
  const bool may_be_absent = family.may_lack_kv_heads || fields.IsNull("num_key_value_heads");
  if (fields.Has("num_key_value_heads") || !may_be_absent) {
    FT_ASSIGN_OR_RETURN(config.num_kv_heads, ReadSize(fields, "num_key_value_heads", kMaxHeads, family.num_kv_heads));
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    return fields.Error("num_key_value_heads", "expects a divisor of num_attention_heads ", config.num_heads, ", got ",
                        config.num_kv_heads);
  }

  if (fields.Has("head_dim")) {
    FT_ASSIGN_OR_RETURN(config.head_dim, ReadSize(fields, "head_dim", kMaxHeads));
  } else if (family.head_dim != 0) {
    config.head_dim = family.head_dim;
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
absl::StatusOr<std::optional<int64_t>> ReadWindow(const JsonFields& fields, const Family& family) {
  if (family.windows == WindowRule::kNone) {
    // Some readers of such a file apply the window, and others do not, unless the file says that it is not used.
    if (fields.Has("sliding_window") && !fields.Has("use_sliding_window")) {
      return fields.Error("sliding_window", "is not supported for ", family.class_name, ": expects null, got ",
                          fields.Text("sliding_window"));
    }
    return std::optional<int64_t>();
  }
  if (family.windows == WindowRule::kFlagged) {
    FT_ASSIGN_OR_RETURN(const bool is_used, fields.OrDefault<bool>("use_sliding_window", false));
    if (!is_used) return std::optional<int64_t>();
  }
  if (fields.IsNull("sliding_window")) return std::optional<int64_t>();
  FT_ASSIGN_OR_RETURN(std::optional<int64_t> window, fields.Optional<int64_t>("sliding_window"));
  if (!window) window = family.window;
  if (window && (*window < 1 || *window > kMaxPositions)) {
    return fields.Error("sliding_window", "expects an integer from 1 to ", kMaxPositions, ", got ", *window);
  }
  return window;
}

// Whether a layer has the window, as far as layer_types do not decide it.
absl::StatusOr<std::vector<bool>> ReadWindowedLayers(const JsonFields& fields, const Family& family,
                                                     int64_t num_layers) {
  std::vector<bool> is_windowed(static_cast<size_t>(num_layers), true);
  if (family.windows == WindowRule::kFlagged) {
    FT_ASSIGN_OR_RETURN(const int64_t first, fields.OrDefault<int64_t>("max_window_layers", 28));
    for (int64_t layer = 0; layer < num_layers; ++layer) is_windowed[static_cast<size_t>(layer)] = layer >= first;
  } else if (family.windows == WindowRule::kPattern) {
    FT_ASSIGN_OR_RETURN(const int64_t pattern,
                        fields.OrDefault<int64_t>("sliding_window_pattern", family.window_pattern));
    if (pattern < 1) return fields.Error("sliding_window_pattern", "expects an integer above 0, got ", pattern);
    for (int64_t layer = 0; layer < num_layers; ++layer)
      is_windowed[static_cast<size_t>(layer)] = (layer + 1) % pattern;
  }
  return is_windowed;
}

// Where the family lets them, layer_types decide which layers have the window. Elsewhere they must not contradict it.
absl::Status ReadSlidingWindows(const JsonFields& fields, const Family& family, ModelConfig& config) {
  FT_ASSIGN_OR_RETURN(const std::optional<int64_t> window, ReadWindow(fields, family));
  FT_ASSIGN_OR_RETURN(const std::vector<bool> is_windowed, ReadWindowedLayers(fields, family, config.num_layers));
  for (const bool has_window : is_windowed) config.sliding_windows.push_back(has_window ? window : std::nullopt);

  FT_ASSIGN_OR_RETURN(const auto types, fields.Optional<std::vector<std::string>>("layer_types"));
  if (!types) return absl::OkStatus();
  if (types->size() != config.sliding_windows.size()) {
    return fields.Error("layer_types", "expects num_hidden_layers = ", config.num_layers, " entries, got ",
                        types->size());
  }
  const bool types_decide = family.windows == WindowRule::kFlagged || family.windows == WindowRule::kPattern;
  for (size_t layer = 0; layer < types->size(); ++layer) {
    const std::string& type = (*types)[layer];
    const bool is_sliding = type == "sliding_attention";
    if (!is_sliding && type != "full_attention") {
      return fields.Error("layer_types", "expects full_attention or sliding_attention, got ", type, " for layer ",
                          layer);
    }
    const bool is_possible =
        types_decide ? window || !is_sliding : is_sliding == config.sliding_windows[layer].has_value();
    if (!is_possible) {
      return fields.Error("layer_types", "says ", type, " for layer ", layer, ", which contradicts sliding_window ",
                          fields.Text("sliding_window"), " of this architecture");
    }
    config.sliding_windows[layer] = is_sliding ? window : std::nullopt;
  }
  return absl::OkStatus();
}

// A number above 0, unset where the field is null.
absl::StatusOr<std::optional<double>> ReadPositive(const JsonFields& fields, const std::string& name,
                                                   std::optional<double> default_value) {
  if (fields.IsNull(name)) return std::optional<double>();
  FT_ASSIGN_OR_RETURN(std::optional<double> value, fields.Optional<double>(name));
  if (value && *value <= 0) return fields.Error(name, "expects a number above 0, got ", *value);
  return value ? value : default_value;
}

// Gemma's switches and Granite's.
absl::Status ReadScales(const JsonFields& fields, const Family& family, ModelConfig& config) {
  if (family.is_gemma) {
    config.norm_offset = 1;
    config.post_norms = true;
    config.gating.activation = kernels::Activation::kGeluTanh;
    // transformers rounds the factor to the weights' dtype.
    const auto root = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
    config.embedding_multiplier = kernels::FloatFromBf16(kernels::Bf16FromFloat(root));
    FT_ASSIGN_OR_RETURN(const std::optional<double> scalar, ReadPositive(fields, "query_pre_attn_scalar", 256));
    if (!scalar) return fields.Error("query_pre_attn_scalar", "expects a number above 0, got null");
    config.attention_scale = 1 / std::sqrt(*scalar);
    FT_ASSIGN_OR_RETURN(config.attention_cap, ReadPositive(fields, "attn_logit_softcapping", family.attention_cap));
    FT_ASSIGN_OR_RETURN(config.logit_cap, ReadPositive(fields, "final_logit_softcapping", family.logit_cap));
  }
  if (family.knows_multipliers) {
    const auto read = [&](const char* name) -> absl::StatusOr<double> {
      FT_ASSIGN_OR_RETURN(const std::optional<double> value, ReadPositive(fields, name, 1));
      return value.value_or(1);
    };
    FT_ASSIGN_OR_RETURN(config.attention_scale, read("attention_multiplier"));
    FT_ASSIGN_OR_RETURN(config.embedding_multiplier, read("embedding_multiplier"));
    FT_ASSIGN_OR_RETURN(config.residual_multiplier, read("residual_multiplier"));
    FT_ASSIGN_OR_RETURN(const double divisor, read("logits_scaling"));
    config.logit_multiplier = 1 / divisor;
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

// What a GGUF file stores in another form than a directory of the same model.
void ReadAsGguf(ModelConfig& config) {
  config.norm_offset = 0;  // is in the stored weights
  config.experts.names = ExpertNames::kGateUpDown;
  config.gating.is_interleaved = false;
  config.quantization.has_transposed_experts = false;
}

}  // namespace

const char* ClassName(Architecture architecture) {
  return std::ranges::find(kFamilies, architecture, &Family::architecture)->class_name;
}

const char* ModelTypeName(Architecture architecture) {
  return std::ranges::find(kFamilies, architecture, &Family::architecture)->model_type;
}

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text, absl::string_view source) {
  FT_ASSIGN_OR_RETURN(const JsonFields whole, JsonFields::Parse(text, source));
  FT_ASSIGN_OR_RETURN(const std::optional<JsonFields> text_part, whole.Object("text_config"));
  const JsonFields& fields = text_part ? *text_part : whole;
  FT_ASSIGN_OR_RETURN(const Family* const found, ReadFamily(fields));
  const Family& family = *found;
  ModelConfig config = {.architecture = family.architecture};
  config.is_text_part = text_part.has_value();
  if (text_part) config.prefixes = {.body = "language_model.model.", .head = "language_model."};
  FT_RETURN_IF_ERROR(RefuseWhatIsNotKnown(fields, family));
  FT_RETURN_IF_ERROR(ReadSizes(fields, family, config));
  FT_RETURN_IF_ERROR(ReadHeads(fields, family, config));
  FT_RETURN_IF_ERROR(ReadSlidingWindows(fields, family, config));
  FT_RETURN_IF_ERROR(ReadRotation(fields, family, kMaxPositions, config));
  FT_RETURN_IF_ERROR(ReadScales(fields, family, config));
  FT_RETURN_IF_ERROR(ReadExperts(fields, family, config));
  // Some writers put it beside the text part.
  FT_ASSIGN_OR_RETURN(
      config.tie_word_embeddings,
      (fields.Has("tie_word_embeddings") ? fields : whole).OrDefault("tie_word_embeddings", family.ties_embeddings));
  FT_ASSIGN_OR_RETURN(const bool attention_bias, fields.OrDefault<bool>("attention_bias", family.attention_bias));
  config.attention_bias = attention_bias || family.has_qkv_bias;
  config.attention_output_bias = attention_bias && !family.has_qkv_bias && !family.has_plain_output;
  FT_ASSIGN_OR_RETURN(config.mlp_bias, fields.OrDefault<bool>("mlp_bias", false));
  FT_ASSIGN_OR_RETURN(const bool use_qk_norm, fields.OrDefault<bool>("use_qk_norm", false));
  config.qk_norm = family.has_qk_norm || use_qk_norm;
  if (family.has_outer_norms) {
    config.whole_qk_norm = config.post_norms = true;
    config.pre_norms = false;
  }
  config.attention_sinks = family.has_attention_sinks;
  config.fused_projections = family.has_fused_projections;

  const auto read_ids = [&](const std::string& name, std::optional<int64_t> id) {
    return ReadTokenIds(whole.Has(name) ? whole : fields, name, id ? std::vector<int64_t>{*id} : std::vector<int64_t>(),
                        config.vocab_size);
  };
  FT_ASSIGN_OR_RETURN(config.bos_token_ids, read_ids("bos_token_id", family.bos_token_id));
  FT_ASSIGN_OR_RETURN(config.eos_token_ids, read_ids("eos_token_id", family.eos_token_id));
  FT_ASSIGN_OR_RETURN(config.dtype, whole.Optional<std::string>(whole.Has("dtype") ? "dtype" : "torch_dtype"));
  FT_ASSIGN_OR_RETURN(config.quantization, quantization::ReadQuantizationConfig(whole));
  if (!config.quantization.is_declared) {  // some writers put it into the text part
    FT_ASSIGN_OR_RETURN(config.quantization, quantization::ReadQuantizationConfig(fields));
  }
  config.quantization.has_transposed_experts = family.experts == ExpertRule::kGptOss;
  return config;
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory) {
  FT_ASSIGN_OR_RETURN(const std::string text, gguf::ReadModelFile(directory, kFileName));
  FT_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(text, gguf::ModelFileName(directory, kFileName)));
  if (gguf::IsGgufPath(directory)) {
    ReadAsGguf(config);
  } else if (!config.quantization.is_declared) {
    FT_ASSIGN_OR_RETURN(config.quantization, quantization::LoadQuantizationFile(directory));
    config.quantization.has_transposed_experts = config.experts.names == ExpertNames::kGptOss;
  }
  return config;
}

}  // namespace foretoken::model
