// SPDX-License-Identifier: Apache-2.0
// What BranchRows must do, for any implementation, against tests/reference: each case gets the op on arguments whose
// pointers are all the host's, and results that are there when it returns.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/ops.h"

namespace foretoken::testing {

using BranchRowsOp = std::function<void(const kernels::BranchRowsArgs&)>;

// Random rows under random combinations of the filters, ranked by score.
void ExpectTheReferencesBranches(const BranchRowsOp& op, int num_rounds);
// The same, ranked by draft_prob.
void ExpectTheLargestDraftProbs(const BranchRowsOp& op, int num_rounds);
void ExpectALargeVocabularyToBeBranchedWhole(const BranchRowsOp& op, uint32_t num_draws);
void ExpectNoBranchesOfABrokenOrEmptyRow(const BranchRowsOp& op);
// Many rows at once: each has the children, bit for bit, that it has alone, and what lies beyond V has no part.
void ExpectRowsToBranchAlone(const BranchRowsOp& op);

}  // namespace foretoken::testing
