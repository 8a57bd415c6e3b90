// SPDX-License-Identifier: Apache-2.0
// The config.json of a DFlash or DSpark drafter, as plain data. The keys of the method stand under `dflash_config`, or
// at the top; the sizes stand at the top, or under `transformer_layer_config` (speculators).
//
// Errors: INVALID_ARGUMENT with the file, the field, the expected and the given value.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/config/config.h"
#include "proposer_service/draft/draft_proposer.h"
#include "proposer_service/features/block_draft.h"
#include "proposer_service/features/markov_head.h"
#include "proposer_service/features/parts/drafter_tensors.h"
#include "proposer_service/features/parts/feature_layers.h"
#include "proposer_service/features/parts/target_files.h"

namespace foretoken::proposer {

struct DflashConfig {
  model::ModelConfig block;  // of the drafter; vocab_size is the target's, as the drafter's file says it
  int64_t draft_vocab_size = 0;
  FeatureLayers layers;
  BlockForm form;
  std::vector<bool> is_causal;  // [L] whether a layer's rows see their block only as far as themselves
  bool is_dspark = false;
  MarkovForm markov;
};

// Some keys follow from the tensors that the file has.
absl::StatusOr<DflashConfig> ReadDflashConfig(const DraftOptions& options, const TargetFiles& target,
                                              const DrafterTensors& tensors);

}  // namespace foretoken::proposer
