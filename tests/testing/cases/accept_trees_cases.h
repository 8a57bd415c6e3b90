// SPDX-License-Identifier: Apache-2.0
// What AcceptTrees and ScoreTokens must do, for any implementation: each case gets the op on arguments whose pointers
// are all the host's, and results that are there when it returns.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/ops.h"

namespace foretoken::testing {

using AcceptTreesOp = std::function<void(const kernels::AcceptTreesArgs&)>;
using ScoreTokensOp = std::function<void(const kernels::ScoreTokensArgs&)>;

// Tree walks as tests/cases/accept_trees.txt tells them; a test program that was carried elsewhere has no such file.
bool HasWalkTable();
void ExpectWalksAsTheTableSays(const AcceptTreesOp& op);

// Many random trees, whole, against plain decoding with the reference: the same tokens, as far as the tree reaches.
void ExpectPlainDecoding(const AcceptTreesOp& op, int num_rounds);

void ExpectLogprobsOfTheUnmodifiedRow(const AcceptTreesOp& op);
void ExpectScoresOfEachRowsOwnToken(const ScoreTokensOp& op);

// Random trees with drawn children, by rejection sampling: the rule of kernels/rejection_sampling.h over the
// reference's rows, with the coins of kernels/keyed_coins.h. That the rule itself is exact is shown in tests/exact.
void ExpectTheRejectionRule(const AcceptTreesOp& op, int32_t num_tokens, int num_rounds);
void ExpectABrokenRowToEndTheTestAndSaySo(const AcceptTreesOp& op);

// Random trees of both rules, with everything that a request can ask for: each has the same path and, bit for bit, the
// same log-probabilities alone as among others, whichever rows its logits stand in.
void ExpectTreesToStandAlone(const AcceptTreesOp& op, int num_trees);

}  // namespace foretoken::testing
