// SPDX-License-Identifier: Apache-2.0
// EAGLE-3: one decoder layer, or a few, that read several hidden states of the target (eagle3_layers.h).
//
//   z = R(y),  logits = lm_head z
// The output of the row is y, or z where norm_output. A file with a mask state is one of P-EAGLE (p_eagle.h).
#pragma once

#include "absl/status/statusor.h"
#include "proposer_service/draft/draft_proposer.h"

namespace foretoken::proposer {

// Reads the head in options.model_directory, for the target in options.target_directory. Errors: the fault, the file
// or the option, the expected and the given value.
absl::StatusOr<Drafter> LoadEagle3(const DraftOptions& options);

}  // namespace foretoken::proposer
