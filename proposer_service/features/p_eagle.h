// SPDX-License-Identifier: Apache-2.0
// P-EAGLE: an EAGLE-3 head that guesses a block of tokens in one pass. Row 0 of a block is the root's row; each further
// row takes the embedding of the mask token, and a learned mask state in the place of the target's hidden states. The
// rows of a block see the context and each other in order.
//
// Source: the reader of vLLM, and speculators.
#pragma once

#include "absl/status/statusor.h"
#include "proposer_service/draft/draft_proposer.h"
#include "proposer_service/features/eagle3_layers.h"

namespace foretoken::proposer {

// Of files with a mask state. Errors: the fault and the key of config.json.
absl::StatusOr<Drafter> MakePEagle(Eagle3Files files, const DraftOptions& options);

}  // namespace foretoken::proposer
