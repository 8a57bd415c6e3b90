// SPDX-License-Identifier: Apache-2.0
// The required behaviour of AcceptTrees and ScoreTokens, for any implementation. The op of a case takes host pointers
// only, and its results are complete when it returns.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/ops.h"

namespace foretoken::testing {

using AcceptTreesOp = std::function<void(const kernels::AcceptTreesArgs&)>;
using ScoreTokensOp = std::function<void(const kernels::ScoreTokensArgs&)>;

// True if tests/cases/accept_trees.txt, the table of tree walks, is on this machine.
bool HasWalkTable();
// Checks the tree walks of the table.
void ExpectWalksAsTheTableSays(const AcceptTreesOp& op);

// Compares many random trees with plain decoding by the reference: the same tokens, as far as the tree reaches.
void ExpectPlainDecoding(const AcceptTreesOp& op, int num_rounds);

void ExpectLogprobsOfTheUnmodifiedRow(const AcceptTreesOp& op);
void ExpectScoresOfEachRowsOwnToken(const ScoreTokensOp& op);

// Compares random trees with drawn children, under rejection sampling, with the rule of kernels/rejection_sampling.h
// over the reference's rows and the coins of kernels/keyed_coins.h. tests/exact shows that the rule itself is exact.
void ExpectTheRejectionRule(const AcceptTreesOp& op, int32_t num_tokens, int num_rounds);
void ExpectABrokenRowToEndTheTestAndSaySo(const AcceptTreesOp& op);

// Checks random trees of both rules with all options of a request. Each has the same path and the same bits of
// log-probabilities alone and among others, for any rows of its logits.
void ExpectTreesToStandAlone(const AcceptTreesOp& op, int num_trees);

}  // namespace foretoken::testing
