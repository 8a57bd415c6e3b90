// SPDX-License-Identifier: Apache-2.0
// The cases of the CPU's test on the CUDA backend. If this test fails, a draft model on a GPU proposes worse guesses,
// and speculation gains less.
#include "kernels/cuda/draw/branch_rows.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/cases/branch_cases.h"

namespace foretoken::kernels::cuda {
namespace {

class BranchRowsTest : public OnDevice {
 protected:
  testing::BranchRowsOp op() {
    return [this](const BranchRowsArgs& args) { RunBranchRows(args); };
  }
};

TEST_F(BranchRowsTest, EqualsTheReferenceUnderAllFilters) { testing::ExpectTheReferencesBranches(op(), 150); }
TEST_F(BranchRowsTest, ByDraftProbTheLargestOfTheFilteredDistributionComeFirst) {
  testing::ExpectTheLargestDraftProbs(op(), 100);
}
TEST_F(BranchRowsTest, ALargeVocabularyIsSearchedWhole) { testing::ExpectALargeVocabularyToBeBranchedWhole(op(), 1); }
TEST_F(BranchRowsTest, ABrokenOrEmptyRowHasNoChildren) { testing::ExpectNoBranchesOfABrokenOrEmptyRow(op()); }
TEST_F(BranchRowsTest, EachRowIsItsOwnAndPaddingHasNoPart) { testing::ExpectRowsToBranchAlone(op()); }

}  // namespace
}  // namespace foretoken::kernels::cuda
