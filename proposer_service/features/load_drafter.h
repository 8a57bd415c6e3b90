// SPDX-License-Identifier: Apache-2.0
// The drafters that read the target's hidden states, by the names of their methods.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proposer_service/draft/draft_proposer.h"

namespace foretoken::proposer {

// Whether the method is one of them.
bool ReadsFeatures(absl::string_view method);

// The method is one of them. INVALID_ARGUMENT names the option, expected and got.
absl::Status ValidateFeatureDraft(absl::string_view method, const DraftOptions& options);

// The options are valid, and the method is one of them. Errors: as LoadEagle3.
absl::StatusOr<Drafter> LoadDrafter(absl::string_view method, const DraftOptions& options);

}  // namespace foretoken::proposer
