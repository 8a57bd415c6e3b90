// SPDX-License-Identifier: Apache-2.0
// If these tests fail, a draft proposer answers too early with a poor tree, or too late for the verifier's step.
#include "proposer_service/draft/answer_timing.h"

#include "gtest/gtest.h"

namespace foretoken::proposer {
namespace {

using speculation::TokenTree;

// A root with its children only: .6, .2, .1.
TokenTree Bare() { return {.nodes = {{1, -1, .6f, 1}, {2, -1, .2f, 1}, {3, -1, .1f, 1}}}; }

// The same tree with two nodes below node 1: 4 (.6) and 5 (.2).
TokenTree Grown() {
  TokenTree tree = Bare();
  tree.Append({4, 0, .6f, 1});
  tree.Append({5, 0, .2f, 1});
  return tree;
}

TEST(ExpectGrowth, NewChildrenTakeTheSameSharesAsOtherChildren) {
  const ExpectedGrowth growth = ExpectGrowth(Bare(), 10, 1);
  EXPECT_NEAR(growth.value, 1.9, 1e-6);
  EXPECT_NEAR(growth.gain, .6 * (.6 + .2 + .1), 1e-6);
  EXPECT_NEAR(ExpectGrowth(Bare(), 10, 2).gain, .8 * .9, 1e-6) << "of two leaves";
}

TEST(ExpectGrowth, OnlySentNodesCount) {
  EXPECT_NEAR(ExpectGrowth(Bare(), 2, 9).value, 1.8, 1e-6);
  EXPECT_NEAR(ExpectGrowth(Bare(), 2, 9).gain, .36 - .2, 1e-6) << "the best expected child instead of 2";
  EXPECT_NEAR(ExpectGrowth(Bare(), 1, 9).gain, 0, 1e-6);
}

TEST(ExpectGrowth, OnlyLeavesGrow) {
  const ExpectedGrowth growth = ExpectGrowth(Grown(), 4, 1);
  EXPECT_NEAR(growth.value, 1 + .6 + .36 + .2 + .12, 1e-6);
  // The best leaf is 4. Its best child has the path chance .36 x .6 and takes the place of 5.
  EXPECT_NEAR(growth.gain, .36 * .6 - .12, 1e-6);
}

TEST(ExpectGrowth, AnEmptyTreeDoesNotGrow) {
  EXPECT_EQ(ExpectGrowth({}, 8, 8).value, 1);
  EXPECT_EQ(ExpectGrowth({}, 8, 8).gain, 0);
}

// A gain of .54 over a value of 1.9 is worth 28 % of a step.
TEST(IsWorthAnotherPass, IfTheGainIsLargerThanThePassesShareOfAStep) {
  const ExpectedPass pass = {.num_rows = 1, .duration = absl::Milliseconds(1)};
  const auto is_worth = [&](int step_us) {
    return IsWorthAnotherPass(Bare(), 10, pass,
                              {.step = absl::Microseconds(step_us), .left = absl::InfiniteDuration()});
  };
  EXPECT_TRUE(is_worth(80000));
  EXPECT_TRUE(is_worth(3600));
  EXPECT_FALSE(is_worth(3400));
  EXPECT_FALSE(is_worth(0)) << "not known";
}

TEST(IsWorthAnotherPass, NeverBeyondTheVerifiersWait) {
  const ExpectedPass pass = {.num_rows = 1, .duration = absl::Milliseconds(1)};
  EXPECT_TRUE(IsWorthAnotherPass(Bare(), 10, pass, {.step = absl::Seconds(1), .left = absl::Milliseconds(2)}));
  EXPECT_FALSE(IsWorthAnotherPass(Bare(), 10, pass, {.step = absl::Seconds(1), .left = absl::Microseconds(1999)}));
  EXPECT_FALSE(IsWorthAnotherPass(Bare(), 10, pass, {.step = absl::Seconds(1), .left = -absl::Milliseconds(1)}));
}

TEST(IsWorthAnotherPass, NotBeforeAPassWasMeasured) {
  EXPECT_FALSE(
      IsWorthAnotherPass(Bare(), 10, {.num_rows = 9}, {.step = absl::Seconds(1), .left = absl::InfiniteDuration()}));
}

}  // namespace
}  // namespace foretoken::proposer
