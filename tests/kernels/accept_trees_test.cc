// SPDX-License-Identifier: Apache-2.0
// The cases of tests/testing/cases/accept_trees_cases.h on every instruction set. If this test fails, speculation
// changes the output of a CPU server, or log-probabilities are wrong.
#include "kernels/cpu/draw/accept_trees.h"

#include <gtest/gtest.h>

#include "kernels/cpu/draw/score_tokens.h"
#include "tests/testing/cases/accept_trees_cases.h"
#include "tests/testing/cases/for_each_isa.h"

namespace foretoken::kernels::cpu {
namespace {

using testing::ForEachIsa;

void Accept(const AcceptTreesArgs& args) {
  ThreadPool pool(2);
  AcceptTrees(args, pool);
}

void Score(const ScoreTokensArgs& args) {
  ThreadPool pool(2);
  ScoreTokens(args, pool);
}

TEST(AcceptTrees, FollowsTheTableOfWalks) { testing::ExpectWalksAsTheTableSays(Accept); }

TEST(AcceptTrees, EmitsTheTokensOfPlainDecoding) {
  ForEachIsa([] { testing::ExpectPlainDecoding(Accept, 60); });
}

TEST(AcceptTrees, ReportsLogprobsOfTheUnmodifiedRow) {
  ForEachIsa([] { testing::ExpectLogprobsOfTheUnmodifiedRow(Accept); });
}

TEST(AcceptTrees, TestsDrawnChildrenByTheRule) {
  ForEachIsa([] { testing::ExpectTheRejectionRule(Accept, 37, 100); });
}

TEST(AcceptTrees, TestsDrawnChildrenOfALargeVocabularyByTheRule) {
  ForEachIsa([] { testing::ExpectTheRejectionRule(Accept, 5000, 10); });
}

TEST(AcceptTrees, ATreeDoesNotDependOnOthers) {
  ForEachIsa([] { testing::ExpectTreesToStandAlone(Accept, 40); });
}

TEST(AcceptTrees, ABrokenRowEndsTheTestWithItsStatus) { testing::ExpectABrokenRowToEndTheTestAndSaySo(Accept); }

TEST(ScoreTokens, ScoresEachRowsOwnToken) { testing::ExpectScoresOfEachRowsOwnToken(Score); }

}  // namespace
}  // namespace foretoken::kernels::cpu
