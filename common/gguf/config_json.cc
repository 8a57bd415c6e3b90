// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/config_json.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/gguf/architectures.h"
#include "common/gguf/rope_json.h"
#include "common/gguf/token_list.h"

namespace foretoken::gguf {
namespace {

using nlohmann::json;

// Numbers that only some architectures know, each with the one value that changes nothing.
constexpr std::pair<absl::string_view, double> kNeutralNumbers[] = {
    {".expert_count", 0},
    {".expert_used_count", 0},
    {".expert_shared_count", 0},
    {".expert_group_count", 1},
    {".expert_weights_scale", 1},
    {".leading_dense_block_count", 0},
    {".nextn_predict_layers", 0},
    {".pooling_type", 0},
    {".attention.sliding_window", 0},
    {".attention.clamp_kqv", 0},
    {".attention.max_alibi_bias", 0},
    {".attention.scale", 0},
    {".attention.temperature_scale", 0},
    {".attn_logit_softcapping", 0},
    {".final_logit_softcapping", 0},
    {".logit_scale", 1},
    {".embedding_scale", 1},
    {".residual_scale", 1},
    {".rope.scaling.yarn_attn_factor", 1},
    {".rope.scaling.yarn_ext_factor", 1},
    {".rope.scaling.yarn_log_multiplier", 0},
};

absl::Status RefuseWhatIsNotImplemented(const Metadata& metadata, const Architecture& architecture) {
  for (const auto& [ending, neutral] : kNeutralNumbers) {
    if (std::ranges::find(architecture.keys, ending, &KeyOfField::ending) != architecture.keys.end()) continue;
    const std::string key = absl::StrCat(architecture.name, ending);
    FT_ASSIGN_OR_RETURN(const double number, metadata.OrDefault<double>(key, neutral));
    if (number != neutral) return metadata.Error(key, "is not supported: expected ", neutral, ", got ", number);
  }
  FT_ASSIGN_OR_RETURN(const std::string kind, metadata.OrDefault<std::string>("general.type", "model"));
  if (kind != "model") return metadata.Error("general.type", "expected model, got ", kind);
  constexpr int64_t kVersion = 2;  // of the quantised types' layouts
  FT_ASSIGN_OR_RETURN(const int64_t version, metadata.OrDefault<int64_t>("general.quantization_version", kVersion));
  if (version != kVersion)
    return metadata.Error("general.quantization_version", "expected ", kVersion, ", got ", version);
  const std::string pattern = absl::StrCat(architecture.name, ".attention.sliding_window_pattern");
  if (metadata.Has(pattern)) return metadata.Error(pattern, "is not supported");
  if (architecture.has_experts()) {
    const auto expected = static_cast<int64_t>(architecture.weighting);
    const std::string key = absl::StrCat(architecture.name, ".expert_gating_func");
    FT_ASSIGN_OR_RETURN(const int64_t given, metadata.OrDefault<int64_t>(key, expected));
    if (given != expected) return metadata.Error(key, "expected ", expected, ", got ", given);
  }
  return absl::OkStatus();
}

// The model must read every tensor of the file.
absl::Status CheckTensorNames(const GgufModel& model, const Architecture& architecture) {
  std::vector<std::string> unknown;
  for (const GgufFile& file : model.files()) {
    for (const auto& [name, tensor] : file.tensors()) {
      if (!IsRopeTensor(name) && !HuggingFaceName(architecture, name)) unknown.push_back(name);
    }
  }
  if (unknown.empty()) return absl::OkStatus();
  std::ranges::sort(unknown);
  return model.metadata().Error(absl::StrCat("tensor ", absl::Utf8SafeCHexEscape(unknown.front())),
                                "a model of architecture ", architecture.name, " does not read it");
}

absl::Status AddSizes(const Metadata& metadata, const Architecture& architecture, json& config) {
  const std::string name = architecture.name;
  for (const auto& [field, ending] : {std::pair("hidden_size", ".embedding_length"),
                                      {"intermediate_size", ".feed_forward_length"},
                                      {"num_hidden_layers", ".block_count"},
                                      {"num_attention_heads", ".attention.head_count"},
                                      {"max_position_embeddings", ".context_length"}}) {
    FT_ASSIGN_OR_RETURN(config[field], metadata.Required<int64_t>(name + ending));
  }
  FT_ASSIGN_OR_RETURN(config["num_key_value_heads"],
                      metadata.OrDefault<int64_t>(name + ".attention.head_count_kv", config["num_attention_heads"]));
  FT_ASSIGN_OR_RETURN(config["rms_norm_eps"], metadata.Required<double>(name + ".attention.layer_norm_rms_epsilon"));
  return absl::OkStatus();
}

// The keys of some architectures.
absl::Status AddKnownKeys(const Metadata& metadata, const Architecture& architecture, json& config) {
  for (const KeyOfField& known : architecture.keys) {
    const std::string key = absl::StrCat(architecture.name, known.ending);
    if (known.is_whole) {
      FT_ASSIGN_OR_RETURN(const auto value, metadata.Optional<int64_t>(key));
      if (value) config[known.field] = *value;
    } else {
      FT_ASSIGN_OR_RETURN(const auto value, metadata.Optional<double>(key));
      if (value) config[known.field] = *value;
    }
  }
  if (architecture.has_experts()) {
    FT_RETURN_IF_ERROR(metadata.Required<int64_t>(absl::StrCat(architecture.name, ".expert_count")).status());
  }
  // A window of 0 means that there is none.
  if (config.value("sliding_window", int64_t{1}) == 0) config["sliding_window"] = nullptr;
  return absl::OkStatus();
}

// What follows from several keys, or from the architecture alone.
absl::Status AddRules(const Metadata& metadata, const Architecture& architecture, json& config) {
  if (architecture.layers_with_wide_scale > 0) {
    const auto num_heads = config["num_attention_heads"].get<int64_t>();
    const bool is_wide = config["num_hidden_layers"] == architecture.layers_with_wide_scale && num_heads > 0;
    config["query_pre_attn_scalar"] =
        is_wide ? config["hidden_size"].get<int64_t>() / num_heads : config["head_dim"].get<int64_t>();
  }
  if (architecture.has_experts()) {
    FT_ASSIGN_OR_RETURN(config["norm_topk_prob"],
                        metadata.OrDefault<bool>(absl::StrCat(architecture.name, ".expert_weights_norm"), true));
  }
  // GGUF counts the layers for multi-token prediction, too.
  const auto num_layers = config["num_hidden_layers"].get<int64_t>(),
             num_unread = config.value("num_nextn_predict_layers", int64_t{0});
  if (num_unread < 0 || num_unread > num_layers) {
    return metadata.Error(absl::StrCat(architecture.name, ".nextn_predict_layers"), "expected a number from 0 to ",
                          num_layers, ", the block_count, got ", num_unread);
  }
  config["num_hidden_layers"] = num_layers - num_unread;
  return absl::OkStatus();
}

struct Heads {
  int64_t size = 0;        // dimensions
  int64_t num_turned = 0;  // of them
};

absl::StatusOr<Heads> AddHeads(const Metadata& metadata, const Architecture& architecture, json& config) {
  FT_ASSIGN_OR_RETURN(const int64_t size, HeadDim(metadata, architecture));
  const std::string value_key = absl::StrCat(architecture.name, ".attention.value_length"),
                    turned_key = absl::StrCat(architecture.name, ".rope.dimension_count");
  const auto unlike = [&](const std::string& key, int64_t got) {
    return metadata.Error(key, "expected ", size, " as in attention.key_length, got ", got);
  };
  FT_ASSIGN_OR_RETURN(const int64_t value_size, metadata.OrDefault<int64_t>(value_key, size));
  if (value_size != size) return unlike(value_key, value_size);
  FT_ASSIGN_OR_RETURN(const int64_t num_turned, metadata.OrDefault<int64_t>(turned_key, size));
  if (num_turned != size && !architecture.may_turn_parts) return unlike(turned_key, num_turned);
  if (num_turned < 2 || num_turned > size || num_turned % 2 != 0) {
    return metadata.Error(turned_key, "expected an even number from 2 to ", size, ", got ", num_turned);
  }
  config["head_dim"] = size;
  if (architecture.may_turn_parts) {
    config["partial_rotary_factor"] = static_cast<double>(num_turned) / static_cast<double>(size);
  }
  return Heads{.size = size, .num_turned = num_turned};
}

absl::Status AddTokenIds(const Metadata& metadata, json& config) {
  FT_ASSIGN_OR_RETURN(const SpecialIds ids, ReadSpecialIds(metadata));
  config["bos_token_id"] = ids.bos ? json(*ids.bos) : json();
  config["eos_token_id"] = ids.eos ? json(*ids.eos) : json();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<json> ConfigJson(const GgufModel& model) {
  const Metadata& metadata = model.metadata();
  FT_ASSIGN_OR_RETURN(const Architecture* const found, FindArchitecture(metadata));
  const Architecture& architecture = *found;
  FT_RETURN_IF_ERROR(RefuseWhatIsNotImplemented(metadata, architecture));
  FT_RETURN_IF_ERROR(CheckTensorNames(model, architecture));
  json config = {{"architectures", {architecture.class_name}}, {"model_type", architecture.model_type}};
  FT_RETURN_IF_ERROR(AddSizes(metadata, architecture, config));
  FT_RETURN_IF_ERROR(AddKnownKeys(metadata, architecture, config));
  FT_ASSIGN_OR_RETURN(const Heads heads, AddHeads(metadata, architecture, config));
  FT_RETURN_IF_ERROR(AddRules(metadata, architecture, config));
  FT_ASSIGN_OR_RETURN(const double theta,
                      metadata.OrDefault<double>(absl::StrCat(architecture.name, ".rope.freq_base"), 10000));
  config["rope_theta"] = theta;
  FT_ASSIGN_OR_RETURN(
      config["rope_scaling"],
      RopeScalingJson({.model = model, .architecture = architecture, .theta = theta, .num_turned = heads.num_turned}));
  const GgufTensor* embed = model.FindTensor("token_embd.weight");
  if (embed == nullptr || embed->shape.size() != 2) {
    return metadata.Error("tensor token_embd.weight", "expected a matrix, got ", embed == nullptr ? "none" : "another");
  }
  config["vocab_size"] = embed->shape[0];
  config["tie_word_embeddings"] = model.FindTensor("output.weight") == nullptr;
  // Tensors that some models of an architecture have. The first layer shows it.
  const auto has_any = [&](std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* name) { return model.FindTensor(name) != nullptr; });
  };
  if (architecture.has_declared_biases) {
    config["attention_bias"] =
        has_any({"blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias", "blk.0.attn_output.bias"});
  }
  config["mlp_bias"] = has_any({"blk.0.ffn_gate.bias", "blk.0.ffn_up.bias", "blk.0.ffn_down.bias"});
  if (has_any({"blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"})) config["use_qk_norm"] = true;
  FT_RETURN_IF_ERROR(AddTokenIds(metadata, config));
  return config;
}

absl::StatusOr<json> GenerationConfigJson(const GgufModel& model) {
  const Metadata& metadata = model.metadata();
  FT_ASSIGN_OR_RETURN(const SpecialIds ids, ReadSpecialIds(metadata));
  std::vector<int64_t> ends;
  for (const std::optional<int64_t>& id : {ids.eos, ids.eot, ids.eom}) {
    if (id && std::ranges::find(ends, *id) == ends.end()) ends.push_back(*id);
  }
  json config = json::object();
  if (!ends.empty()) config["eos_token_id"] = ends;
  for (const auto& [name, key] : {std::pair("temperature", "general.sampling.temp"),
                                  {"top_p", "general.sampling.top_p"},
                                  {"min_p", "general.sampling.min_p"},
                                  {"repetition_penalty", "general.sampling.penalty_repeat"}}) {
    FT_ASSIGN_OR_RETURN(const auto number, metadata.Optional<double>(key));
    if (number) config[name] = *number;
  }
  FT_ASSIGN_OR_RETURN(const auto top_k, metadata.Optional<int64_t>("general.sampling.top_k"));
  if (top_k) config["top_k"] = *top_k;
  return config;
}

}  // namespace foretoken::gguf
