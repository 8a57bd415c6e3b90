// SPDX-License-Identifier: Apache-2.0
// Tries a drafter on its target before it serves. The trial loads the target, lets it continue a few prompts greedily,
// and compares readings of the drafter's file: the hidden states that it reads, and those one layer before and behind
// them. A wrong reading raises no error, and in a target whose neighbouring layers are alike it still makes most of its
// right guesses, so that guesses alone do not give it away. The chances that it gives the target's tokens do.
//
//   FT_ASSIGN_OR_RETURN(model::RunnableModel target, LoadTrialTarget(options, kernels::FreeMemory()));
//   FT_RETURN_IF_ERROR(TryDrafter(*drafter.model, *drafter.description.features, target));
//
// The target takes its full memory as long as the caller keeps it, and computes about 64 steps of 6 texts. A drafter
// that reads the last hidden state alone has no other reading; only its guesses are tried.
// Errors. LoadTrialTarget: RESOURCE_EXHAUSTED if the free memory does not hold the target; others as
// model::LoadModel's. TryDrafter: INVALID_ARGUMENT if a neighbouring reading is better, if fewer than one token in five
// is the drafter's best guess, or if it could score fewer than 100 tokens; it names the layers and the numbers.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/runnable_model.h"
#include "common/speculation/target_features.h"
#include "proposer_service/draft/draft_model.h"
#include "proposer_service/draft/draft_proposer.h"

namespace foretoken::proposer {

// `free_bytes`: the memory that the target may take; unset: the device checks its own.
absl::StatusOr<model::RunnableModel> LoadTrialTarget(const DraftOptions& options, std::optional<int64_t> free_bytes);

absl::Status TryDrafter(DraftModel& drafter, const speculation::TargetFeatures& features, model::RunnableModel& target);

}  // namespace foretoken::proposer
