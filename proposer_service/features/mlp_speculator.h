// SPDX-License-Identifier: Apache-2.0
// The MLP speculator: a recurrence over the drafted tokens, without attention.
//
// s begins as the target's last hidden state after the final norm; where scale_input, as s / rms(s) / sqrt(2). Step i
// with the token t:
//   s = proj_i s + emb_i[t] (ew / sw),   sw = 0.5^(0.5 / n_predict),   ew = sqrt((1 - sw^2) inner_dim / 2)
//   s = GELU(gain_i * s / rms(s) + bias_i)
//   logits = head_i s
// There are n_predict steps. Tied weights are those of step 0, but for the projection, whose second one serves all
// later steps.
//
// Source: IBM's speculator of fms-extras, and its readers in vLLM and TGI.
#pragma once

#include "absl/status/statusor.h"
#include "proposer_service/draft/draft_proposer.h"

namespace foretoken::proposer {

// As LoadEagle3.
absl::StatusOr<Drafter> LoadMlpSpeculator(const DraftOptions& options);

}  // namespace foretoken::proposer
