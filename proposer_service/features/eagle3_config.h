// SPDX-License-Identifier: Apache-2.0
// The config.json of an EAGLE-3 head, as plain data, in three published layouts: the sizes at the top; the same with
// `eagle_config` beside them (ModelOpt); or the sizes under `transformer_layer_config` (speculators).
//
//   FT_ASSIGN_OR_RETURN(const Eagle3Config config, ReadEagle3Config(text, path, target));
//
// Errors: INVALID_ARGUMENT with the file, the field, the expected and the given value.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/config/config.h"
#include "common/speculation/target_features.h"
#include "proposer_service/features/parts/feature_layers.h"
#include "proposer_service/features/parts/target_files.h"

namespace foretoken::proposer {

struct Eagle3Config {
  model::ModelConfig block;      // of the head; vocab_size is the target's, as the head's file says it
  int64_t draft_vocab_size = 0;  // Vd
  bool reads_layers = true;      // false: the head reads the last hidden state, and has no first matrix
  FeatureLayers layers;          // if it reads layers
  speculation::FeatureProjection::Norm norm = speculation::FeatureProjection::Norm::kNone;  // before the first matrix
  bool norm_before_residual = false;
  bool norm_output = false;  // the next row takes the normed output
  float logit_scale = 1;
};

// `given_layers` is the option feature_layers. `source` names the text in messages.
absl::StatusOr<Eagle3Config> ReadEagle3Config(absl::string_view text, absl::string_view source,
                                              const TargetSizes& target, absl::string_view given_layers = "");

// Reads the sizes of a drafter's decoder blocks from an object of a config.json. Contexts may be as long as the
// target's.
absl::StatusOr<model::ModelConfig> ReadBlockConfig(nlohmann::json object, absl::string_view source,
                                                   const TargetSizes& target);

}  // namespace foretoken::proposer
