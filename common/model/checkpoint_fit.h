// SPDX-License-Identifier: Apache-2.0
// Differences between a checkpoint and its configuration that do not stop a server. The server then does the same as
// transformers 5, and a line of the log names the difference.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/config.h"
#include "common/weights/checkpoint.h"

namespace foretoken::model {

// Unties the head in `config` where it is said to be the embedding and the checkpoint has another one. Tells of that,
// and of tensors that the model does not read. Errors: as Checkpoint::Find.
absl::StatusOr<std::vector<std::string>> FitToCheckpoint(const weights::Checkpoint& checkpoint, ModelConfig& config);

}  // namespace foretoken::model
