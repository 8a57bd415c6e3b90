// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of given tokens, for example of a prompt: see ScoreTokensArgs and score_row.h. Parallel over rows.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void ScoreTokens(const ScoreTokensArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
