// SPDX-License-Identifier: Apache-2.0
// The required behaviour of BranchRows, for any implementation, against tests/reference. The op of a case takes host
// pointers only, and its results are complete when it returns.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/ops.h"

namespace foretoken::testing {

using BranchRowsOp = std::function<void(const kernels::BranchRowsArgs&)>;

// Random rows under random combinations of the filters, in the order of scores.
void ExpectTheReferencesBranches(const BranchRowsOp& op, int num_rounds);
// The same, in the order of draft_prob.
void ExpectTheLargestDraftProbs(const BranchRowsOp& op, int num_rounds);
void ExpectALargeVocabularyToBeBranchedWhole(const BranchRowsOp& op, uint32_t num_draws);
void ExpectNoBranchesOfABrokenOrEmptyRow(const BranchRowsOp& op);
// Many rows at once: each has the same children, bit for bit, as alone, and values beyond V do not matter.
void ExpectRowsToBranchAlone(const BranchRowsOp& op);

}  // namespace foretoken::testing
