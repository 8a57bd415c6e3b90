// SPDX-License-Identifier: Apache-2.0
// The same cases as on the CPU, and that a tree has the same bits whatever stands beside it.
#include "kernels/cuda/accept_trees.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/accept_trees_cases.h"

namespace foretoken::kernels::cuda {
namespace {

class AcceptTreesTest : public OnDevice {
 protected:
  testing::AcceptTreesOp op() {
    return [this](const AcceptTreesArgs& args) { RunAcceptTrees(args); };
  }
};

TEST_F(AcceptTreesTest, WalksAsTheTableSays) { testing::ExpectWalksAsTheTableSays(op()); }

TEST_F(AcceptTreesTest, EmitsWhatPlainDecodingWould) { testing::ExpectPlainDecoding(op(), 3); }

TEST_F(AcceptTreesTest, ReportsLogprobsOfTheUnmodifiedRow) { testing::ExpectLogprobsOfTheUnmodifiedRow(op()); }

TEST_F(AcceptTreesTest, TestsDrawnChildrenByTheRule) { testing::ExpectTheRejectionRule(op(), 10); }

TEST_F(AcceptTreesTest, ABrokenRowEndsTheTestAndSaysSo) { testing::ExpectABrokenRowToEndTheTestAndSaySo(op()); }

using ScoreTokensTest = OnDevice;

TEST_F(ScoreTokensTest, ScoresEachRowsOwnToken) {
  testing::ExpectScoresOfEachRowsOwnToken([this](const ScoreTokensArgs& args) { RunScoreTokens(args); });
}

}  // namespace
}  // namespace foretoken::kernels::cuda
