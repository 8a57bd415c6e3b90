// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/config_json.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/gguf/rope_json.h"
#include "common/gguf/tensor_names.h"
#include "common/gguf/token_list.h"

namespace foretoken::gguf {
namespace {

using nlohmann::json;

struct ArchitectureNames {
  const char* gguf;
  const char* class_name;
};

constexpr ArchitectureNames kArchitectures[] = {
    {"llama", "LlamaForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
};

// Numbers of related architectures, each with the one value that changes nothing.
constexpr std::pair<const char*, double> kNeutralNumbers[] = {
    {".expert_count", 0},
    {".expert_used_count", 0},
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
    {".rope.scaling.attn_factor", 1},
    {".rope.scaling.yarn_attn_factor", 1},
    {".rope.scaling.yarn_ext_factor", 1},
    {".rope.scaling.yarn_log_multiplier", 0},
};

absl::Status RefuseWhatIsNotImplemented(const Metadata& metadata, const std::string& architecture) {
  for (const auto& [ending, neutral] : kNeutralNumbers) {
    const std::string key = architecture + ending;
    FT_ASSIGN_OR_RETURN(const double number, metadata.OrDefault<double>(key, neutral));
    if (number != neutral) return metadata.Error(key, "is not supported: expected ", neutral, ", got ", number);
  }
  FT_ASSIGN_OR_RETURN(const std::string kind, metadata.OrDefault<std::string>("general.type", "model"));
  if (kind != "model") return metadata.Error("general.type", "expected model, got ", kind);
  constexpr int64_t kVersion = 2;  // of the quantised types' layouts
  FT_ASSIGN_OR_RETURN(const int64_t version, metadata.OrDefault<int64_t>("general.quantization_version", kVersion));
  if (version != kVersion)
    return metadata.Error("general.quantization_version", "expected ", kVersion, ", got ", version);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadClass(const Metadata& metadata, const std::string& architecture) {
  for (const ArchitectureNames& names : kArchitectures) {
    if (architecture == names.gguf) return names.class_name;
  }
  const auto append = [](std::string* out, const ArchitectureNames& names) { *out += names.gguf; };
  return metadata.Error("general.architecture", "expected one of ", absl::StrJoin(kArchitectures, ", ", append),
                        ", got ", architecture);
}

// Every key that gives the size of a head must give the same.
absl::Status CheckHeadDim(const Metadata& metadata, const std::string& architecture, int64_t head_dim) {
  for (const char* ending : {".attention.value_length", ".rope.dimension_count"}) {
    const std::string key = architecture + ending;
    FT_ASSIGN_OR_RETURN(const int64_t size, metadata.OrDefault<int64_t>(key, head_dim));
    if (size != head_dim) return metadata.Error(key, "expected ", head_dim, " as in attention.key_length, got ", size);
  }
  return absl::OkStatus();
}

absl::Status AddSizes(const Metadata& metadata, const std::string& architecture, json& config) {
  for (const auto& [name, ending] : {std::pair("hidden_size", ".embedding_length"),
                                     {"intermediate_size", ".feed_forward_length"},
                                     {"num_hidden_layers", ".block_count"},
                                     {"num_attention_heads", ".attention.head_count"},
                                     {"max_position_embeddings", ".context_length"}}) {
    FT_ASSIGN_OR_RETURN(config[name], metadata.Required<int64_t>(architecture + ending));
  }
  FT_ASSIGN_OR_RETURN(
      config["num_key_value_heads"],
      metadata.OrDefault<int64_t>(architecture + ".attention.head_count_kv", config["num_attention_heads"]));
  FT_ASSIGN_OR_RETURN(config["rms_norm_eps"],
                      metadata.Required<double>(architecture + ".attention.layer_norm_rms_epsilon"));
  return absl::OkStatus();
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
  FT_ASSIGN_OR_RETURN(const std::string architecture, metadata.Required<std::string>("general.architecture"));
  FT_ASSIGN_OR_RETURN(const std::string class_name, ReadClass(metadata, architecture));
  FT_RETURN_IF_ERROR(RefuseWhatIsNotImplemented(metadata, architecture));
  FT_RETURN_IF_ERROR(CheckTensorNames(model));
  json config = {{"architectures", {class_name}}, {"model_type", architecture}};
  FT_RETURN_IF_ERROR(AddSizes(metadata, architecture, config));
  FT_ASSIGN_OR_RETURN(const int64_t head_dim, HeadDim(metadata, architecture));
  FT_RETURN_IF_ERROR(CheckHeadDim(metadata, architecture, head_dim));
  config["head_dim"] = head_dim;
  FT_ASSIGN_OR_RETURN(const double theta, metadata.OrDefault<double>(architecture + ".rope.freq_base", 10000));
  config["rope_theta"] = theta;
  FT_ASSIGN_OR_RETURN(
      config["rope_scaling"],
      RopeScalingJson({.model = model, .architecture = architecture, .theta = theta, .head_dim = head_dim}));
  const GgufTensor* embed = model.FindTensor("token_embd.weight");
  if (embed == nullptr || embed->shape.size() != 2) {
    return metadata.Error("tensor token_embd.weight", "expected a matrix, got ", embed == nullptr ? "none" : "another");
  }
  config["vocab_size"] = embed->shape[0];
  config["tie_word_embeddings"] = model.FindTensor("output.weight") == nullptr;
  config["attention_bias"] = architecture != "qwen2" && model.FindTensor("blk.0.attn_q.bias") != nullptr;
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
