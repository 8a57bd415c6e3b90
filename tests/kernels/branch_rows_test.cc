// SPDX-License-Identifier: Apache-2.0
// The cases of tests/testing/cases/branch_cases.h on every instruction set. If this test fails, a draft model on a CPU
// proposes worse guesses, and speculation gains less.
#include "kernels/cpu/draw/branch_rows.h"

#include <gtest/gtest.h>

#include "kernels/cpu/draw/draw_row.h"
#include "tests/testing/cases/branch_cases.h"
#include "tests/testing/cases/for_each_isa.h"
#include "tests/testing/cases/random_draw_inputs.h"

namespace foretoken::kernels::cpu {
namespace {

using testing::ForEachIsa;

void Branch(const BranchRowsArgs& args) {
  ThreadPool pool(2);
  BranchRows(args, pool);
}

TEST(BranchRows, EqualsTheReferenceUnderAllFilters) {
  ForEachIsa([] { testing::ExpectTheReferencesBranches(Branch, 1500); });
}

TEST(BranchRows, ByDraftProbTheLargestOfTheFilteredDistributionComeFirst) {
  ForEachIsa([] { testing::ExpectTheLargestDraftProbs(Branch, 500); });
}

TEST(BranchRows, ALargeVocabularyIsSearchedWhole) {
  ForEachIsa([] { testing::ExpectALargeVocabularyToBeBranchedWhole(Branch, 3); });
}

TEST(BranchRows, ABrokenOrEmptyRowHasNoChildren) { testing::ExpectNoBranchesOfABrokenOrEmptyRow(Branch); }

TEST(BranchRows, EachRowIsItsOwnAndPaddingHasNoPart) { testing::ExpectRowsToBranchAlone(Branch); }

TEST(DrawTopTokens, TheFirstIsTheTargetsDraw) {
  testing::RandomValues random(32);
  for (int i = 0; i < 1000; ++i) {
    const reference::DrawInputs inputs = testing::RandomDrawInputs(random);
    const RowDraw draw =
        DrawRow({.logits = inputs.logits, .sampling = inputs.sampling, .bias = {}, .counts = {}}, inputs.t);
    ASSERT_EQ(DrawTopTokens(inputs.logits, inputs.sampling, inputs.t, 4).children[0].token_id, draw.token_id);
  }
}

}  // namespace
}  // namespace foretoken::kernels::cpu
