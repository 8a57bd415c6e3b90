// SPDX-License-Identifier: Apache-2.0
// Handles differences between a checkpoint and its configuration that do not stop a server. The server then does the
// same as transformers 5, and a line of the log names the difference.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/config/config.h"
#include "common/quantization/find_weight.h"
#include "common/weights/checkpoint.h"

namespace foretoken::model {

// Sets what only the checkpoint shows of its tensors' names: the prefixes of a multimodal model's text part, under
// which it has the embedding, and whether it has the gate and up of an expert as one.
void FindStoredNames(const weights::Checkpoint& checkpoint, ModelConfig& config);

// Does the same. Unties the head in `config` if the configuration ties it to the embedding but the checkpoint has a
// different head. Returns lines about that, and about tensors that the model does not read. Errors: as
// quantization::FindWeight.
absl::StatusOr<std::vector<std::string>> FitToCheckpoint(const quantization::OpenedWeights& opened,
                                                         ModelConfig& config);

}  // namespace foretoken::model
