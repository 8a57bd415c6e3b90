// SPDX-License-Identifier: Apache-2.0
// EAGLE-1 and EAGLE-2: one decoder layer that reads the target's last hidden state. The two differ in their trees
// alone.
//
// With R the root mean square norm, t the token of a row and g its feature:
//   x = fc cat(embed(t), g) + b
//   x = x + Attention(x),  y = x + MLP(R(x)),  logits = lm_head y
// Some files have norms of embed(t), of the layer's input, and of y before the head, each where its tensor is.
// The output of the row is y. The feature is the target's last hidden state after the final norm, and the LM head is
// the target's. Further layers are ordinary decoder layers.
//
// Source: EAGLE (2401.15077), EAGLE-2 (2406.16858), their authors' code, and speculators for the norms.
#pragma once

#include "absl/status/statusor.h"
#include "proposer_service/draft/draft_proposer.h"

namespace foretoken::proposer {

// As LoadEagle3.
absl::StatusOr<Drafter> LoadEagle(const DraftOptions& options);

}  // namespace foretoken::proposer
