// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/dflash_config.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/base/json.h"
#include "common/base/json_fields.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "common/model/config/bounds.h"
#include "proposer_service/features/eagle3_config.h"
#include "proposer_service/features/parts/drafter_setup.h"

namespace foretoken::proposer {
namespace {

using model::JsonFields;

// A key that stands in `nested`, or at the top.
template <typename T>
absl::StatusOr<std::optional<T>> Either(const std::optional<JsonFields>& nested, const JsonFields& config,
                                        const std::string& name) {
  if (nested.has_value()) {
    FT_ASSIGN_OR_RETURN(std::optional<T> value, nested->Optional<T>(name));
    if (value.has_value()) return value;
  }
  return config.Optional<T>(name);
}

// Layers whose type is sliding_attention have their window, even where the key that switches windows on is absent.
absl::Status SwitchWindowsOn(const JsonFields& config, nlohmann::json& object) {
  const auto types = object.find("layer_types");
  if (types == object.end() || !types->is_array() || object.contains("use_sliding_window")) return absl::OkStatus();
  if (std::ranges::find(*types, "sliding_attention") == types->end()) return absl::OkStatus();
  const nlohmann::json& type = object["model_type"];
  if (!type.is_string() || type == "llama") {
    return config.Error("model_type", "expects qwen2 or qwen3 where layer_types has sliding_attention, got another");
  }
  object["use_sliding_window"] = true;
  return absl::OkStatus();
}

// `use_swa` gives the window of the layers that slide. If none of them does by its type, it lets all of them slide.
absl::Status ReadWindows(const JsonFields& config, const std::optional<JsonFields>& nested, model::ModelConfig& block) {
  constexpr char kWindow[] = "swa_window_size";
  FT_ASSIGN_OR_RETURN(const auto use_swa, Either<bool>(nested, config, "use_swa"));
  FT_ASSIGN_OR_RETURN(auto window, Either<int64_t>(nested, config, kWindow));
  if (!use_swa.value_or(false)) return absl::OkStatus();
  auto& windows = block.sliding_windows;
  const bool is_by_type = std::ranges::any_of(windows, [](const auto& of_layer) { return of_layer.has_value(); });
  if (!window.has_value() && is_by_type) return absl::OkStatus();
  if (!window.has_value()) {
    FT_ASSIGN_OR_RETURN(window, Either<int64_t>(nested, config, "sliding_window"));
  }
  if (!window.has_value()) return config.Error(kWindow, "is missing, and use_swa is true");
  if (*window < 1 || *window > model::kMaxPositions) {
    return config.Error(kWindow, "expects 1 to ", model::kMaxPositions, ", got ", *window);
  }
  for (auto& of_layer : windows) {
    if (!is_by_type || of_layer.has_value()) of_layer = window;
  }
  return absl::OkStatus();
}

// A layer with a window is causal inside a block, and any other layer is not. One key overrides that for all layers,
// and another key overrides it for the layers with a window.
absl::Status ReadMasks(const JsonFields& config, const std::optional<JsonFields>& nested, DflashConfig& read) {
  FT_ASSIGN_OR_RETURN(auto for_all, config.Optional<bool>("is_causal"));
  if (!for_all.has_value()) {
    FT_ASSIGN_OR_RETURN(for_all, Either<bool>(nested, config, "causal"));
  }
  FT_ASSIGN_OR_RETURN(const bool is_open, config.OrDefault<bool>("sliding_window_non_causal", false));
  for (const auto& window : read.block.sliding_windows) {
    read.is_causal.push_back(for_all.value_or(window.has_value() && !is_open));
  }
  return absl::OkStatus();
}

absl::StatusOr<BlockForm> ReadForm(const JsonFields& config, const std::optional<JsonFields>& nested,
                                   const DflashConfig& read) {
  constexpr int64_t kMaxBlock = 64;
  FT_ASSIGN_OR_RETURN(const auto from_anchor, Either<bool>(nested, config, "sample_from_anchor"));
  FT_ASSIGN_OR_RETURN(const auto block_size, Either<int64_t>(nested, config, "block_size"));
  const bool is_speculators = config.Has("speculators_model_type");
  const int64_t size = block_size.value_or(read.is_dspark ? 7 : is_speculators ? 8 : 16);
  const int64_t first_guess = from_anchor.value_or(read.is_dspark) ? 0 : 1;
  if (size <= first_guess || size > kMaxBlock) {
    return config.Error("block_size", "expects ", first_guess + 1, " to ", kMaxBlock, ", got ", size);
  }
  FT_ASSIGN_OR_RETURN(std::optional<int64_t> mask, Either<int64_t>(nested, config, "mask_token_id"));
  if (!mask.has_value()) {
    FT_ASSIGN_OR_RETURN(mask, Either<int64_t>(nested, config, "dspark_noise_token_id"));
  }
  if (!mask.has_value()) return config.Error("mask_token_id", "is missing");
  if (*mask < 0 || *mask >= read.block.vocab_size) {
    return config.Error("mask_token_id", "expects 0 to ", read.block.vocab_size - 1, ", got ", *mask);
  }
  return BlockForm{.num_rows = static_cast<int32_t>(size),
                   .first_guess = static_cast<int32_t>(first_guess),
                   .windows_from_context = is_speculators,
                   .mask_token_id = static_cast<int32_t>(*mask),
                   .hidden_size = read.block.hidden_size};
}

// Sets is_dspark and the form of the Markov head. A DSpark drafter may have none.
absl::Status ReadDspark(const JsonFields& config, const std::optional<JsonFields>& nested,
                        const DrafterTensors& tensors, DflashConfig& read) {
  FT_ASSIGN_OR_RETURN(const auto rank, Either<int64_t>(nested, config, "markov_rank"));
  FT_ASSIGN_OR_RETURN(const auto type, Either<std::string>(nested, config, "markov_head_type"));
  FT_ASSIGN_OR_RETURN(read.markov, ResolveMarkovForm(config, rank, type, tensors));
  read.markov.vocab_size = read.block.vocab_size;
  read.markov.draft_vocab_size = read.draft_vocab_size;
  read.markov.hidden_size = read.block.hidden_size;
  FT_ASSIGN_OR_RETURN(auto names, config.OrDefault<std::vector<std::string>>("architectures", {}));
  FT_ASSIGN_OR_RETURN(names.emplace_back(), config.OrDefault<std::string>("speculators_model_type", ""));
  const bool is_named = std::ranges::any_of(
      names, [](const std::string& name) { return absl::StrContains(absl::AsciiStrToLower(name), "dspark"); });
  read.is_dspark = is_named || rank.has_value() || read.markov.rank > 0 || MarkovHead::HasConfidence(tensors);
  return absl::OkStatus();
}

absl::Status CheckFit(const JsonFields& config, const std::optional<JsonFields>& nested, const TargetFiles& target,
                      const DflashConfig& read) {
  FT_RETURN_IF_ERROR(CheckVocabulary(config, read.block.vocab_size, target));
  if (read.draft_vocab_size < 1 || read.draft_vocab_size > read.block.vocab_size) {
    return config.Error("draft_vocab_size", "expects 1 to vocab_size ", read.block.vocab_size, ", got ",
                        read.draft_vocab_size);
  }
  FT_ASSIGN_OR_RETURN(const auto num_layers, Either<int64_t>(nested, config, "num_target_layers"));
  if (num_layers.value_or(target.config.num_layers) != target.config.num_layers) {
    return config.Error("num_target_layers", "expects ", target.config.num_layers, ", as the target has, got ",
                        *num_layers);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DflashConfig> ReadDflashConfig(const DraftOptions& options, const TargetFiles& target,
                                              const DrafterTensors& tensors) {
  const std::string path = options.model_directory + "/config.json";
  FT_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  FT_ASSIGN_OR_RETURN(const JsonFields config, JsonFields::Parse(text, path));
  FT_ASSIGN_OR_RETURN(nlohmann::json object, base::ParseJson(text, path));
  FT_ASSIGN_OR_RETURN(const std::optional<JsonFields> nested, config.Object("dflash_config"));
  if (config.Has("transformer_layer_config")) {
    FT_RETURN_IF_ERROR(config.Object("transformer_layer_config").status());
    object = nlohmann::json(object["transformer_layer_config"]);
  }
  if (!object.contains("model_type")) object["model_type"] = "qwen3";
  FT_RETURN_IF_ERROR(SwitchWindowsOn(config, object));
  DflashConfig read;
  FT_ASSIGN_OR_RETURN(read.block, ReadBlockConfig(std::move(object), path, SizesOf(target)));
  read.block.qk_norm = tensors.Contains("layers.0.self_attn.q_norm.weight");
  FT_ASSIGN_OR_RETURN(read.draft_vocab_size, config.OrDefault<int64_t>("draft_vocab_size", read.block.vocab_size));
  FT_RETURN_IF_ERROR(CheckFit(config, nested, target, read));
  FT_RETURN_IF_ERROR(ReadWindows(config, nested, read.block));
  FT_RETURN_IF_ERROR(ReadMasks(config, nested, read));
  FT_ASSIGN_OR_RETURN(const auto has_sinks, Either<bool>(nested, config, "attention_sink_bias"));
  read.block.attention_sinks = has_sinks.value_or(false);
  FT_RETURN_IF_ERROR(ReadDspark(config, nested, tensors, read));
  FT_ASSIGN_OR_RETURN(read.form, ReadForm(config, nested, read));
  read.form.max_kept_logit_bytes = options.max_kept_logit_bytes;
  const int64_t num_target_layers = target.config.num_layers;
  FT_ASSIGN_OR_RETURN(read.layers, ResolveFeatureLayers(config, options.feature_layers, num_target_layers,
                                                        DefaultDflashLayers(num_target_layers, read.block.num_layers)));
  return read;
}

}  // namespace foretoken::proposer
