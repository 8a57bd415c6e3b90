// SPDX-License-Identifier: Apache-2.0
// Medusa: one head for each step ahead, all on the same hidden state. The heads see no drafted token, so all nodes of a
// depth get the same guesses.
//
// x is the target's last hidden state after the final norm. Head m, some residual layers deep:
//   x = x + SiLU(W x + b)       for each layer
//   logits = lm_head_m x
// Head m guesses the token of step m.
//
// A file may have its own names or those of vLLM, LM heads of its own, one shared LM head or none, and a list of the
// target's ids that the heads guess.
//
// Source: Medusa (2401.10774), and the readers of vLLM and TGI for the layouts of files.
#pragma once

#include "absl/status/statusor.h"
#include "proposer_service/draft/draft_proposer.h"

namespace foretoken::proposer {

// As LoadEagle3.
absl::StatusOr<Drafter> LoadMedusa(const DraftOptions& options);

}  // namespace foretoken::proposer
