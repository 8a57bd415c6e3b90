// SPDX-License-Identifier: Apache-2.0
// The cases of the CPU's test on the CUDA backend, and the independence of a tree from its neighbours. If this test
// fails, speculation changes the output of a GPU server.
#include "kernels/cuda/draw/accept_trees.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/cases/accept_trees_cases.h"

namespace foretoken::kernels::cuda {
namespace {

class AcceptTreesTest : public OnDevice {
 protected:
  testing::AcceptTreesOp op() {
    return [this](const AcceptTreesArgs& args) { RunAcceptTrees(args); };
  }
};

TEST_F(AcceptTreesTest, FollowsTheTableOfWalks) {
  if (!testing::HasWalkTable()) GTEST_SKIP() << "the table is in the sources, which are not here";
  testing::ExpectWalksAsTheTableSays(op());
}

TEST_F(AcceptTreesTest, EmitsTheTokensOfPlainDecoding) { testing::ExpectPlainDecoding(op(), 3); }

TEST_F(AcceptTreesTest, ReportsLogprobsOfTheUnmodifiedRow) { testing::ExpectLogprobsOfTheUnmodifiedRow(op()); }

TEST_F(AcceptTreesTest, TestsDrawnChildrenByTheRule) { testing::ExpectTheRejectionRule(op(), 37, 5); }

TEST_F(AcceptTreesTest, TestsDrawnChildrenOfALargeVocabularyByTheRule) {
  testing::ExpectTheRejectionRule(op(), 5000, 2);
}

TEST_F(AcceptTreesTest, ATreeDoesNotDependOnOthers) { testing::ExpectTreesToStandAlone(op(), 20); }

TEST_F(AcceptTreesTest, SynchronizeFillsPathsAndArgumentsAreFreeBefore) {
  const int32_t num_tokens = 5;
  const Buffer logits = device().Allocate(2 * num_tokens * sizeof(float));
  const std::vector<float> rows = {0, 0, 7, 0, 0, 0, 0, 0, 7, 0};
  device().Copy(logits.get(), rows.data(), rows.size() * sizeof(float), CopyKind::kToDevice);
  AcceptedPath path;
  {
    const std::vector<int32_t> token_ids = {1, 2}, parents = {-1, 0};
    const TreeToAccept tree{.token_ids = token_ids, .parents = parents, .sampling = {.temperature = 0}};
    AcceptTrees({.logits = {logits.get(), DType::kF32, Shape(2, num_tokens)},
                 .num_tokens = num_tokens,
                 .trees = {&tree, 1},
                 .paths = {&path, 1}},
                device());
  }
  EXPECT_TRUE(path.token_ids.empty());
  device().Synchronize();
  EXPECT_EQ(path.token_ids, (std::vector<int32_t>{2, 3}));
}

TEST_F(AcceptTreesTest, ABrokenRowEndsTheTestWithItsStatus) { testing::ExpectABrokenRowToEndTheTestAndSaySo(op()); }

using ScoreTokensTest = OnDevice;

TEST_F(ScoreTokensTest, ScoresEachRowsOwnToken) {
  testing::ExpectScoresOfEachRowsOwnToken([this](const ScoreTokensArgs& args) { RunScoreTokens(args); });
}

}  // namespace
}  // namespace foretoken::kernels::cuda
