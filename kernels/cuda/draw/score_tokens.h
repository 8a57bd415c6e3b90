// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of given tokens, as for the logprobs of a prompt: see ScoreTokensArgs and score_rows.h.
#pragma once

#include "kernels/cuda/base/device.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Enqueued: the scores are there when the device is synchronised, the other arguments are free at once.
void ScoreTokens(const ScoreTokensArgs& args, Device& device);

}  // namespace foretoken::kernels::cuda
