// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/parts/feature_layers.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace foretoken::proposer {
namespace {

struct Ids {
  std::vector<int64_t> ids;  // the k of each S_k
  std::string source;
};

absl::StatusOr<Ids> ParseGiven(absl::string_view given) {
  Ids ids{.source = "the option feature_layers"};
  for (const absl::string_view part : absl::StrSplit(given, absl::ByAnyChar(",+"))) {
    int64_t id = 0;
    if (!absl::SimpleAtoi(part, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("feature_layers: expected whole numbers with commas or + between them, got '", given, "'"));
    }
    ids.ids.push_back(id);
  }
  return ids;
}

// Unset: the file has no ids. An empty list stands for the default, too.
absl::StatusOr<std::optional<Ids>> ReadIds(const model::JsonFields& config) {
  for (const std::string name : {"eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids"}) {
    FT_ASSIGN_OR_RETURN(auto ids, config.Optional<std::vector<int64_t>>(name));
    if (ids.has_value() && !ids->empty()) return Ids{.ids = *std::move(ids), .source = name};
  }
  // Outputs of layers: the object that holds the key, "" for the top, and the key.
  static constexpr std::pair<const char*, const char*> kOutputs[] = {
      {"eagle_config", "eagle_aux_hidden_state_layer_ids"},
      {"dflash_config", "target_layer_ids"},
      {"", "target_layer_ids"},
      {"", "dspark_target_layer_ids"}};
  for (const auto& [object, name] : kOutputs) {
    std::optional<model::JsonFields> holder = config;
    if (object[0] != '\0') {
      FT_ASSIGN_OR_RETURN(holder, config.Object(object));
    }
    if (!holder.has_value()) continue;
    FT_ASSIGN_OR_RETURN(auto outputs, holder->Optional<std::vector<int64_t>>(name));
    if (!outputs.has_value() || outputs->empty()) continue;
    for (int64_t& id : *outputs) id = id == INT64_MAX ? id : id + 1;
    const absl::string_view point = object[0] == '\0' ? "" : ".";
    return Ids{.ids = *std::move(outputs), .source = absl::StrCat(object, point, name, ", plus one")};
  }
  return std::nullopt;
}

}  // namespace

std::vector<int64_t> DefaultEagle3Layers(int64_t num_target_layers) {
  return {2, num_target_layers / 2, num_target_layers - 3};
}

std::vector<int64_t> DefaultDflashLayers(int64_t num_target_layers, int64_t num_layers) {
  if (num_layers == 1) return {num_target_layers / 2 + 1};
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < num_layers; ++i) {
    const double output = 1 + static_cast<double>(i * (num_target_layers - 4)) / static_cast<double>(num_layers - 1);
    layers.push_back(static_cast<int64_t>(std::nearbyint(output)) + 1);  // ties to even
  }
  return layers;
}

absl::StatusOr<FeatureLayers> ResolveFeatureLayers(const model::JsonFields& config, absl::string_view given,
                                                   int64_t num_target_layers, std::vector<int64_t> defaults) {
  Ids ids{.ids = std::move(defaults), .source = "the default"};
  if (!given.empty()) {
    FT_ASSIGN_OR_RETURN(ids, ParseGiven(given));
  } else {
    FT_ASSIGN_OR_RETURN(std::optional<Ids> read, ReadIds(config));
    if (read.has_value()) ids = *std::move(read);
  }
  FeatureLayers layers{.source = std::move(ids.source)};
  for (const int64_t id : ids.ids) {
    if (id < 0 || id > num_target_layers) {
      return absl::InvalidArgumentError(absl::StrCat("hidden states of the target, by ", layers.source,
                                                     ": expected S_0 to S_", num_target_layers, ", got S_", id));
    }
    layers.layers.push_back(static_cast<int32_t>(id));
  }
  return layers;
}

std::string Describe(const FeatureLayers& layers) {
  const auto append = [](std::string* out, int32_t layer) { absl::StrAppend(out, "S_", layer); };
  return absl::StrCat(absl::StrJoin(layers.layers, ", ", append), ", by ", layers.source);
}

}  // namespace foretoken::proposer
