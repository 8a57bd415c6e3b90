// SPDX-License-Identifier: Apache-2.0
// If these tests fail, the suffix proposer guesses tokens that cannot come next, and a text with a form loses speed.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/suffix/suffix.h"
#include "tests/testing/cases/allow_ids.h"
#include "tests/testing/cases/tree_columns.h"

namespace foretoken::proposer {
namespace {

using speculation::AllowedTokens;
using speculation::TokenTree;
using testing::AllowIds;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::TokenIds;

class SuffixMasks : public ::testing::Test {
 protected:
  // Opens and ends a session with one output, behind some other tokens, and no prompt.
  void Finish(const std::vector<int32_t>& output) {
    const std::unique_ptr<Session> session = proposer_.Open({});
    session->Want({});
    session->Append(std::vector<int32_t>{91, 92, 93, 94, 95, 96, 97, 98});
    session->Append(output);
  }
  TokenTree ProposeAfter(const std::vector<int32_t>& context, const AllowedTokens& allowed, int32_t node_budget = 1) {
    proposer_.WaitUntilLearned();
    session_ = proposer_.Open({});
    session_->Append(context);
    session_->Want({.node_budget = node_budget, .allowed = allowed});
    return Propose(node_budget);
  }
  TokenTree Propose(int32_t node_budget) {
    const ProposalRequest request = {session_.get(), node_budget};
    return proposer_.Propose({&request, 1}).front();
  }

  SuffixProposer proposer_{{}};
  std::unique_ptr<Session> session_;
};

// After 1, 2 came 3 twice and 4 once.
const std::vector<int32_t> kSuffixText = {1, 2, 3, 6, 1, 2, 4, 7, 1, 2, 3, 8, 1, 2};

TEST_F(SuffixMasks, TheBestAllowedContinuationComesWithTheShareOfTheOthers) {
  const TokenTree free = ProposeAfter(kSuffixText, {}, 2);
  ASSERT_THAT(free.nodes, SizeIs(2));
  EXPECT_EQ(free.nodes[0].token_id, 3);
  const TokenTree tree = ProposeAfter(kSuffixText, AllowIds({4, 5}));
  ASSERT_THAT(TokenIds(tree), ElementsAre(4));
  EXPECT_THAT(tree.nodes[0].chance, FloatEq(free.nodes[0].chance * 3 / 2)) << "3 had two of three occurrences";
}

TEST_F(SuffixMasks, AShorterMatchCountsIfOnlyAnAllowedTokenFollowsIt) {
  EXPECT_THAT(TokenIds(ProposeAfter({9, 2, 5, 6, 1, 2, 4, 7, 1, 2}, AllowIds({5, 6}))), ElementsAre(5));
}

TEST_F(SuffixMasks, FinishedOutputsAreMatchedInTheSameWay) {
  Finish({21, 22, 23, 24});
  Finish({31, 22, 25, 26});
  EXPECT_THAT(TokenIds(ProposeAfter({21, 22}, {})), ElementsAre(23));
  EXPECT_THAT(TokenIds(ProposeAfter({21, 22}, AllowIds({25}))), ElementsAre(25));
}

TEST_F(SuffixMasks, OnlyTheRootIsRestricted) {
  const TokenTree tree = ProposeAfter(kSuffixText, AllowIds({4}), 3);
  EXPECT_THAT(TokenIds(tree), ElementsAre(4, 7, 1));
  EXPECT_THAT(testing::Parents(tree), ElementsAre(-1, 0, 1));
}

TEST_F(SuffixMasks, WithoutAnAllowedContinuationTheTreeIsEmpty) {
  Finish(kSuffixText);
  EXPECT_THAT(ProposeAfter(kSuffixText, AllowIds({}), 8).nodes, IsEmpty());
  EXPECT_THAT(ProposeAfter(kSuffixText, AllowIds({100}), 8).nodes, IsEmpty());
}

TEST_F(SuffixMasks, AMaskOfAllTokensChangesNothing) {
  Finish(kSuffixText);
  Finish({1, 2});
  EXPECT_EQ(ProposeAfter(kSuffixText, testing::AllowAll(), 16).nodes, ProposeAfter(kSuffixText, {}, 16).nodes);
}

TEST_F(SuffixMasks, FurtherTokensEndTheRestriction) {
  ProposeAfter(kSuffixText, AllowIds({4}));
  session_->Append(std::vector<int32_t>{3, 8});
  EXPECT_THAT(TokenIds(Propose(1)), ElementsAre(1));
}

}  // namespace
}  // namespace foretoken::proposer
