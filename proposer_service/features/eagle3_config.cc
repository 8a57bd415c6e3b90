// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/eagle3_config.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/json_fields.h"
#include "common/base/status_macros.h"
#include "proposer_service/features/parts/draft_head.h"

namespace foretoken::proposer {
namespace {

using model::JsonFields;
using nlohmann::json;
using Norm = speculation::FeatureProjection::Norm;

// A file without a class is judged by its tensors alone.
absl::Status CheckFormat(const JsonFields& config) {
  FT_ASSIGN_OR_RETURN(const auto model_type, config.Optional<std::string>("speculators_model_type"));
  if (model_type.has_value() && *model_type != "eagle3" && *model_type != "peagle") {
    return config.Error("speculators_model_type", "expects eagle3 or peagle, got ", *model_type);
  }
  FT_ASSIGN_OR_RETURN(const auto classes, config.Optional<std::vector<std::string>>("architectures"));
  if (!classes.has_value()) return absl::OkStatus();
  for (const std::string& name : *classes) {
    const std::string lower = absl::AsciiStrToLower(name);
    if (absl::StrContains(lower, "eagle3") || absl::StrContains(lower, "peagle")) return absl::OkStatus();
  }
  return config.Error("architectures", "expects a class with eagle3 or peagle in its name, got ",
                      config.Text("architectures"));
}

// Some keys stand at the top or inside eagle_config.
absl::StatusOr<bool> ReadFlag(const JsonFields& config, const std::optional<JsonFields>& nested,
                              const std::string& name, bool default_value) {
  FT_ASSIGN_OR_RETURN(const std::optional<bool> value, config.Optional<bool>(name));
  if (value.has_value() || !nested.has_value()) return value.value_or(default_value);
  return nested->OrDefault<bool>(name, default_value);
}

absl::Status ReadForm(const JsonFields& config, Eagle3Config& head) {
  FT_ASSIGN_OR_RETURN(const std::optional<JsonFields> nested, config.Object("eagle_config"));
  FT_ASSIGN_OR_RETURN(const bool norm_before_fc, ReadFlag(config, nested, "norm_before_fc", false));
  FT_ASSIGN_OR_RETURN(const bool fc_norm, ReadFlag(config, nested, "fc_norm", false));
  if (norm_before_fc && fc_norm) return config.Error("fc_norm", "expects false where norm_before_fc is true, got true");
  head.norm = norm_before_fc ? Norm::kWhole : fc_norm ? Norm::kPerLayer : Norm::kNone;
  FT_ASSIGN_OR_RETURN(head.reads_layers, ReadFlag(config, nested, "use_aux_hidden_state", true));
  FT_ASSIGN_OR_RETURN(head.norm_before_residual, ReadFlag(config, nested, "norm_before_residual", false));
  FT_ASSIGN_OR_RETURN(head.norm_output, ReadFlag(config, nested, "norm_output", false));
  FT_ASSIGN_OR_RETURN(head.logit_scale, ReadLogitScale(config));
  return absl::OkStatus();
}

absl::Status CheckFit(const JsonFields& config, const TargetSizes& target, Eagle3Config& head) {
  FT_ASSIGN_OR_RETURN(const int64_t target_hidden,
                      config.OrDefault<int64_t>("target_hidden_size", head.block.hidden_size));
  if (target_hidden != target.hidden_size) {
    return config.Error(config.Has("target_hidden_size") ? "target_hidden_size" : "hidden_size",
                        "expects the target's hidden size ", target.hidden_size, ", got ", target_hidden);
  }
  if (head.block.vocab_size < target.num_tokens || head.block.vocab_size > target.vocab_size) {
    return config.Error("vocab_size", "expects ", target.num_tokens, " to ", target.vocab_size,
                        ", as many as the target has, got ", head.block.vocab_size);
  }
  FT_ASSIGN_OR_RETURN(head.draft_vocab_size, config.OrDefault<int64_t>("draft_vocab_size", head.block.vocab_size));
  if (head.draft_vocab_size < 1 || head.draft_vocab_size > head.block.vocab_size) {
    return config.Error("draft_vocab_size", "expects 1 to vocab_size ", head.block.vocab_size, ", got ",
                        head.draft_vocab_size);
  }
  if (!head.reads_layers && head.block.hidden_size != target.hidden_size) {
    return config.Error("hidden_size", "expects the target's hidden size ", target.hidden_size,
                        " where use_aux_hidden_state is false, got ", head.block.hidden_size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<model::ModelConfig> ReadBlockConfig(json object, absl::string_view source, const TargetSizes& target) {
  if (!object.is_object()) return absl::InvalidArgumentError(absl::StrCat(source, ": expected a JSON object"));
  const std::string type = object.contains("model_type") && object["model_type"].is_string()
                               ? object["model_type"].get<std::string>()
                               : "llama";
  static constexpr std::pair<const char*, const char*> kClasses[] = {{"llama", "LlamaForCausalLM"},
                                                                     {"mistral", "MistralForCausalLM"},
                                                                     {"qwen2", "Qwen2ForCausalLM"},
                                                                     {"qwen3", "Qwen3ForCausalLM"}};
  object.erase("architectures");
  for (const auto& [known, name] : kClasses) {
    if (type == known) object["architectures"] = {name};
  }
  if (!object.contains("architectures")) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": model_type expects llama, mistral, qwen2 or qwen3, got ", type));
  }
  object["model_type"] = type;
  if (!object.contains("num_hidden_layers")) object["num_hidden_layers"] = 1;
  if (!object.contains("max_position_embeddings")) object["max_position_embeddings"] = target.max_positions;
  object["bos_token_id"] = object["eos_token_id"] = nullptr;  // nothing reads them
  object.erase("logit_scale");                                // of the head's logits; its reader applies it
  FT_ASSIGN_OR_RETURN(model::ModelConfig config,
                      model::ParseModelConfig(object.dump(-1, ' ', false, json::error_handler_t::replace), source));
  config.max_position_embeddings = target.max_positions;  // scaled angles followed from the file's own number
  if (config.mlp_bias) return absl::InvalidArgumentError(absl::StrCat(source, ": mlp_bias expects false, got true"));
  if (config.quantization.is_declared) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": quantization_config is not supported for drafters: the drafter is needed in bf16"));
  }
  return config;
}

absl::StatusOr<Eagle3Config> ReadEagle3Config(absl::string_view text, absl::string_view source,
                                              const TargetSizes& target, absl::string_view given_layers) {
  FT_ASSIGN_OR_RETURN(const JsonFields config, JsonFields::Parse(text, source));
  FT_ASSIGN_OR_RETURN(json object, base::ParseJson(text, source));
  FT_RETURN_IF_ERROR(CheckFormat(config));
  Eagle3Config head;
  if (config.Has("transformer_layer_config")) {
    FT_RETURN_IF_ERROR(config.Object("transformer_layer_config").status());
    object = json(object["transformer_layer_config"]);
  }
  FT_ASSIGN_OR_RETURN(head.block, ReadBlockConfig(std::move(object), source, target));
  FT_RETURN_IF_ERROR(ReadForm(config, head));
  FT_RETURN_IF_ERROR(CheckFit(config, target, head));
  if (head.reads_layers) {
    FT_ASSIGN_OR_RETURN(head.layers, ResolveFeatureLayers(config, given_layers, target.num_layers,
                                                          DefaultEagle3Layers(target.num_layers)));
  } else if (!given_layers.empty()) {
    return config.Error("use_aux_hidden_state", "expects true where the option feature_layers is given, got false");
  }
  return head;
}

}  // namespace foretoken::proposer
