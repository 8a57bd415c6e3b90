// SPDX-License-Identifier: Apache-2.0
// Tries a drafter on its target before it serves. The trial loads the target, lets it continue a few prompts greedily,
// and compares readings of the drafter's file: the hidden states that it reads, and those one layer before and behind
// them. A wrong reading raises no error, and in a target whose neighbouring layers are alike it still makes most of its
// right guesses, so that guesses alone do not give it away. The chances that it gives the target's tokens do.
//
//   FT_RETURN_IF_ERROR(TryDrafter(*drafter.model, *drafter.description.features, options));
//
// The target takes its full memory until the function returns. A drafter that reads the last hidden state alone has no
// other reading; only its guesses are tried.
// Errors: INVALID_ARGUMENT: a neighbouring reading is better, or fewer than one token in five is the drafter's best
// guess; it names the layers and the numbers. Others: as model::LoadModel's, of the target.
#pragma once

#include "absl/status/status.h"
#include "common/speculation/target_features.h"
#include "proposer_service/draft/draft_model.h"
#include "proposer_service/draft/draft_proposer.h"

namespace foretoken::proposer {

absl::Status TryDrafter(DraftModel& drafter, const speculation::TargetFeatures& features, const DraftOptions& options);

}  // namespace foretoken::proposer
