// SPDX-License-Identifier: Apache-2.0
// If these tests fail, the n-gram proposer guesses tokens that cannot come next, and a text with a form loses speed.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/ngram/ngram.h"
#include "tests/testing/cases/allow_ids.h"
#include "tests/testing/cases/tree_columns.h"

namespace foretoken::proposer {
namespace {

using speculation::AllowedTokens;
using speculation::TokenTree;
using testing::AllowIds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::TokenIds;

// After 1, 2 came 3, then 4. After 2 alone came 5, too.
const std::vector<int32_t> kText = {9, 2, 5, 6, 1, 2, 4, 7, 1, 2, 3, 8, 1, 2};

class NgramMasks : public ::testing::Test {
 protected:
  TokenTree Propose(const AllowedTokens& allowed, int32_t node_budget = 1) {
    session_->Want({.node_budget = node_budget, .allowed = allowed});
    return Propose(node_budget);
  }
  TokenTree Propose(int32_t node_budget) {
    const ProposalRequest request = {session_.get(), node_budget};
    return proposer_.Propose({&request, 1}).front();
  }

  NgramProposer proposer_{{}};
  std::unique_ptr<Session> session_ = proposer_.Open({});
};

TEST_F(NgramMasks, TheBestAllowedContinuationComes) {
  session_->Append(kText);
  EXPECT_THAT(TokenIds(Propose(AllowedTokens())), ElementsAre(3));
  EXPECT_THAT(TokenIds(Propose(AllowIds({4, 5, 6}))), ElementsAre(4));
}

TEST_F(NgramMasks, AShorterMatchCountsIfOnlyAnAllowedTokenFollowsIt) {
  session_->Append(kText);
  EXPECT_THAT(TokenIds(Propose(AllowIds({5, 6}))), ElementsAre(5));
}

TEST_F(NgramMasks, OldOccurrencesCountIfNewerOnesMayNotCome) {
  std::vector<int32_t> text = {1, 2};
  for (int i = 0; i < 12; ++i) text.insert(text.end(), {1, 3});
  text.push_back(1);
  session_->Append(text);
  EXPECT_THAT(TokenIds(Propose(AllowIds({2}))), ElementsAre(2));
}

TEST_F(NgramMasks, OnlyTheRootIsRestricted) {
  session_->Append(kText);
  const TokenTree tree = Propose(AllowIds({4}), 3);
  EXPECT_THAT(TokenIds(tree), ElementsAre(4, 7, 1));
  EXPECT_THAT(testing::Parents(tree), ElementsAre(-1, 0, 1));
}

TEST_F(NgramMasks, WithoutAnAllowedContinuationTheTreeIsEmpty) {
  session_->Append(kText);
  EXPECT_THAT(Propose(AllowIds({}), 8).nodes, IsEmpty());
  EXPECT_THAT(Propose(AllowIds({100}), 8).nodes, IsEmpty());
}

TEST_F(NgramMasks, AMaskOfAllTokensChangesNothing) {
  session_->Append(kText);
  EXPECT_EQ(Propose(testing::AllowAll(), 16).nodes, Propose(AllowedTokens(), 16).nodes);
}

TEST_F(NgramMasks, FurtherTokensEndTheRestriction) {
  session_->Append(kText);
  Propose(AllowIds({7}), 1);
  session_->Append(std::vector<int32_t>{3});
  EXPECT_THAT(TokenIds(Propose(1)), ElementsAre(8));
}

}  // namespace
}  // namespace foretoken::proposer
