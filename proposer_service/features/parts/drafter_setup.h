// SPDX-License-Identifier: Apache-2.0
// What every drafter that reads features needs before it is loaded: a backend, a plan of its memory, and its
// description.
//
// Errors: the option, the expected and the given value; RESOURCE_EXHAUSTED if the device has too little memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/json_fields.h"
#include "common/model/config/config.h"
#include "common/speculation/target_features.h"
#include "kernels/backend.h"
#include "proposer_service/draft/draft_proposer.h"
#include "proposer_service/features/parts/drafter_tensors.h"
#include "proposer_service/features/parts/feature_layers.h"
#include "proposer_service/features/parts/target_files.h"

namespace foretoken::proposer {

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeDrafterBackend(const DraftOptions& options);

// The rows of a pass.
int32_t MaxRows(const DraftOptions& options);

// What a drafter keeps of each position.
struct PositionBytes {
  int64_t kv = 0;      // 0: the drafter has no attention
  int64_t output = 0;  // of the row
  int64_t max_positions = 0;
};
// Of a drafter with these decoder blocks, whose K and V the backend's option says how to keep.
PositionBytes BytesOf(const model::ModelConfig& blocks, const kernels::Backend& backend);

struct DrafterNeeds {
  std::string method;
  PositionBytes bytes;
  size_t weight_bytes = 0;
  speculation::TargetFeatures features;
  int64_t vocab_size = 0;  // of the logits; 0: the caller sets it when it has read the weights
  size_t pass_bytes = 0;   // that are worth counting
};
struct DrafterPlan {
  DraftModel::Limits limits;
  ProposerDescription description;
};
// K/V and outputs share the memory that kv_cache_mb allows. INVALID_ARGUMENT: it does not hold 64 tokens.
// RESOURCE_EXHAUSTED: the device has no room for them and the weights.
absl::StatusOr<DrafterPlan> PlanDrafter(const DraftOptions& options, const TargetFiles& target, DrafterNeeds needs,
                                        const kernels::Backend& backend);

// For a drafter without attention, which reads the last hidden state after the final norm.
DrafterNeeds StepwiseNeeds(const TargetFiles& target, int64_t state_width, size_t weight_bytes, std::string method);

// Reads "fc.weight", which the verifier multiplies the layers' hidden states by. The file's fault is named: a matrix
// for another number of layers.
absl::StatusOr<speculation::TargetFeatures> ReadProjectedFeatures(const FeatureLayers& layers, int64_t num_outputs,
                                                                  const TargetFiles& target,
                                                                  const DrafterTensors& tensors);

// The vocabulary of a drafter has the target's tokens, and at most the padding of the target's weights.
absl::Status CheckVocabulary(const model::JsonFields& config, int64_t vocab_size, const TargetFiles& target);

}  // namespace foretoken::proposer
