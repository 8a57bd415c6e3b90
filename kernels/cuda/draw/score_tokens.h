// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of given tokens, for example of a prompt: see ScoreTokensArgs and score_rows.h.
#pragma once

#include "kernels/cuda/base/device.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Enqueues the work. The scores are filled when the device is synchronised; the other arguments may change at once.
void ScoreTokens(const ScoreTokensArgs& args, Device& device);

}  // namespace foretoken::kernels::cuda
