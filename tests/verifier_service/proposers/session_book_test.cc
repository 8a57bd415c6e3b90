// SPDX-License-Identifier: Apache-2.0
// The book of sessions: messages to replicas, and the placement of sequences. If this test fails, a proposer guesses
// from a wrong context, sequences lose their proposer, or a bad replica makes the verifier send contexts again and
// again.
#include "verifier_service/proposers/session_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/verifier_service/proposers/session_book_fixture.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<int32_t> Count(int32_t first, int32_t num) {
  std::vector<int32_t> tokens(static_cast<size_t>(num));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST_F(SessionBookTest, OpensOnceThenAdvances) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5, 6, 7});
  const v1::ProposeRequest open = Next(10);
  ASSERT_THAT(open.opens(), SizeIs(1));
  EXPECT_EQ(open.opens(0).session_id(), 1);
  EXPECT_THAT(open.opens(0).token_ids(), ElementsAre(5, 6, 7));
  EXPECT_EQ(open.opens(0).seed(), 9);
  EXPECT_EQ(open.opens(0).tenant(), "t");
  EXPECT_EQ(open.opens(0).rule(), v1::VERIFICATION_RULE_KEYED_DRAW);
  EXPECT_EQ(open.opens(0).node_budget(), 0);
  EXPECT_FALSE(open.opens(0).awaiting_more());
  EXPECT_FALSE(book_.NextRequest(10, kNow).has_value());

  book_.Advance(1, std::vector<int32_t>{8}, {.node_budget = 16, .proposers = kEverybody});
  book_.MarkFlushed(10, {.patience = absl::Milliseconds(3), .step = absl::Milliseconds(12)}, kNow);
  const v1::ProposeRequest advance = Next(10);
  EXPECT_THAT(advance.opens(), IsEmpty());
  ASSERT_THAT(advance.advances(), SizeIs(1));
  EXPECT_EQ(advance.advances(0).base_position(), 3);
  EXPECT_THAT(advance.advances(0).token_ids(), ElementsAre(8));
  EXPECT_EQ(advance.advances(0).node_budget(), 16);
  EXPECT_EQ(advance.advances(0).next_step_us(), 3000);
}

TEST_F(SessionBookTest, OnlyRejectionSamplingGetsTheDraftDistributions) {
  book_.AddReplica(10, 0, {}, kNow);
  using enum kernels::VerificationRule;
  book_.Open({.sequence_id = 1, .token_ids = kTokens, .rule = kRejectionSampling, .proposers = 1}, kNow);
  book_.Open({.sequence_id = 2, .token_ids = kTokens, .rule = kKeyedDraw, .proposers = 1}, kNow);
  const v1::ProposeRequest open = Next(10);
  ASSERT_THAT(open.opens(), SizeIs(2));
  EXPECT_EQ(open.opens(0).rule(), v1::VERIFICATION_RULE_REJECTION_SAMPLING);
  EXPECT_EQ(open.opens(1).rule(), v1::VERIFICATION_RULE_KEYED_DRAW);
  CheckedAnswer answer;
  for (const uint64_t session_id : {1, 2}) {
    answer.trees.push_back(
        {session_id, speculation::TokenTree{
                         .position = 1, .nodes = {{1, -1, .5f, 1}}, .sampled = {{.parent = -1, .children = {0}}}}});
  }
  book_.TakeAnswer(10, std::move(answer), kNow);
  const std::vector<Proposal> proposals = book_.TakeProposals();
  ASSERT_THAT(proposals, SizeIs(2));
  EXPECT_EQ(proposals[0].sequence_id, 1);
  EXPECT_THAT(proposals[0].tree.sampled, SizeIs(1));
  EXPECT_THAT(proposals[1].tree.sampled, IsEmpty());
}

TEST_F(SessionBookTest, WaitingAdvancesMergeWithTheLastBudget) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5});
  Next(10);
  book_.Advance(1, std::vector<int32_t>{6}, {.node_budget = 16, .proposers = kEverybody});
  book_.Advance(1, std::vector<int32_t>{7, 8}, {.node_budget = 4, .proposers = kEverybody});
  const v1::ProposeRequest request = Next(10);
  ASSERT_THAT(request.advances(), SizeIs(1));
  EXPECT_EQ(request.advances(0).base_position(), 1);
  EXPECT_THAT(request.advances(0).token_ids(), ElementsAre(6, 7, 8));
  EXPECT_EQ(request.advances(0).node_budget(), 4);
}

TEST_F(SessionBookTest, ASessionThatIsNotAskedReceivesNothingAndCatchesUpLater) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5});
  Next(10);
  book_.Advance(1, std::vector<int32_t>{6}, {.node_budget = 16, .proposers = 0});
  book_.Advance(1, std::vector<int32_t>{7}, {});
  EXPECT_FALSE(book_.NextRequest(10, kNow).has_value());
  book_.Advance(1, std::vector<int32_t>{8}, {.node_budget = 16, .proposers = 1});
  const v1::ProposeRequest request = Next(10);
  ASSERT_THAT(request.advances(), SizeIs(1));
  EXPECT_EQ(request.advances(0).base_position(), 1);
  EXPECT_THAT(request.advances(0).token_ids(), ElementsAre(6, 7, 8));
  EXPECT_EQ(request.advances(0).node_budget(), 16);
}

TEST_F(SessionBookTest, TheFarewellHasUnsentTokensWithTheOutputApartFromTheOpening) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5});
  Next(10);
  Open(2, {3, 4}, /*proposers=*/1, /*told_proposers=*/0);
  EXPECT_FALSE(book_.NextRequest(10, kNow).has_value());
  book_.Advance(1, std::vector<int32_t>{6, 7}, {});
  book_.Advance(2, std::vector<int32_t>{8, 9}, {});
  book_.Close(1);
  book_.Close(2);
  const v1::ProposeRequest request = Next(10);
  ASSERT_THAT(request.opens(), SizeIs(1));
  EXPECT_THAT(request.opens(0).token_ids(), ElementsAre(3, 4));
  EXPECT_FALSE(request.opens(0).awaiting_more());
  ASSERT_THAT(request.advances(), SizeIs(2));
  EXPECT_THAT(request.advances(0).token_ids(), ElementsAre(6, 7));
  EXPECT_THAT(request.advances(1).token_ids(), ElementsAre(8, 9));
  EXPECT_EQ(request.advances(1).node_budget(), 0);
  EXPECT_THAT(request.closes(), SizeIs(2));
  EXPECT_FALSE(book_.NextRequest(10, kNow).has_value());
}

TEST_F(SessionBookTest, FarewellsToAPeerThatDoesNotReadStayShort) {
  book_.AddReplica(10, 0, {}, kNow);
  for (SequenceId id = 1; id <= 100; ++id) {
    Open(id, Count(0, 1000), /*proposers=*/1, /*told_proposers=*/0);
    book_.Close(id);
  }
  EXPECT_LE(Next(10).ByteSizeLong(), 256 * 1024);
  for (SequenceId id = 1; id <= 10'000; ++id) {
    book_.Open({.sequence_id = id, .token_ids = kTokens, .tenant = std::string(256, 't'), .told_proposers = 0}, kNow);
    book_.Close(id);
  }
  const v1::ProposeRequest many = Next(10);
  EXPECT_GT(many.opens_size(), 100);
  EXPECT_LE(many.ByteSizeLong(), 256 * 1024);
}

TEST_F(SessionBookTest, AClosedSessionIsClosedAtItsReplicaAndItsTreesAreStale) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5});
  Next(10);
  book_.Advance(1, std::vector<int32_t>{6}, {.node_budget = 16, .proposers = kEverybody});
  book_.Close(1);
  const v1::ProposeRequest request = Next(10);
  ASSERT_THAT(request.advances(), SizeIs(1));
  EXPECT_EQ(request.advances(0).node_budget(), 0) << "the book sends the rest and asks for no tree";
  ASSERT_THAT(request.closes(), SizeIs(1));
  EXPECT_EQ(request.closes(0).session_id(), 1);
  EXPECT_EQ(Tree(10, 1, 2).num_stale_trees, 1);
  EXPECT_THAT(book_.TakeProposals(), IsEmpty());
}

TEST_F(SessionBookTest, ATreeThatWaitsToBeTakenIsDroppedWithItsSequence) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5});
  Next(10);
  EXPECT_EQ(Tree(10, 1, 1).num_trees, 1);
  book_.Close(1);
  EXPECT_THAT(book_.TakeProposals(), IsEmpty());
}

TEST_F(SessionBookTest, AQuestionIsLateIfTheNextOneComesBeforeItsAnswer) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5});
  Next(10);  // asks for no tree yet
  const auto advance = [&](int32_t token_id) {
    book_.Advance(1, std::vector<int32_t>{token_id}, {.node_budget = 16, .proposers = kEverybody});
    Next(10);
  };
  advance(6);
  EXPECT_EQ(Tree(10, 1, 2).num_trees, 1);
  advance(7);  // the answer for 2 was here
  EXPECT_EQ(book_.totals(0).num_late, 0);
  advance(8);  // no answer for 3 yet
  EXPECT_EQ(Tree(10, 1, 3).num_trees, 1) << "a late tree is still the newest one";
  advance(9);  // no answer for 4 yet: the tree for 3 was none
  EXPECT_EQ(book_.totals(0).num_questions, 4);
  EXPECT_EQ(book_.totals(0).num_late, 2);
  book_.Close(1);
  Next(10);
  EXPECT_EQ(Tree(10, 1, 5).num_stale_trees, 1);
  EXPECT_EQ(book_.totals(0).num_late, 2) << "a tree for an ended sequence is not late";
}

TEST_F(SessionBookTest, OnlyTheNewestTreeIsKept) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5, 6, 7});
  Next(10);
  EXPECT_EQ(Tree(10, 1, 2).num_trees, 1);
  EXPECT_EQ(Tree(10, 1, 3).num_trees, 1);
  EXPECT_EQ(Tree(10, 1, 1).num_stale_trees, 1);
  const std::vector<Proposal> proposals = book_.TakeProposals();
  ASSERT_THAT(proposals, SizeIs(1));
  EXPECT_EQ(proposals[0].sequence_id, 1);
  EXPECT_EQ(proposals[0].tree.position, 3);
  EXPECT_THAT(book_.TakeProposals(), IsEmpty());
}

TEST_F(SessionBookTest, ATreeAboutUnsentTokensIsBad) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5});
  Next(10);
  const AnswerVerdict verdict = Tree(10, 1, 2);
  EXPECT_EQ(verdict.num_bad_trees, 1);
  EXPECT_THAT(verdict.first_fault, HasSubstr("position: expected at most 1, got 2"));
}

TEST_F(SessionBookTest, ATreeOfASessionThatNeverExistedIsBad) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5});
  Next(10);
  EXPECT_EQ(Tree(10, 0, 1).num_bad_trees, 1);
  const AnswerVerdict verdict = Tree(10, 77, 1);
  EXPECT_EQ(verdict.num_bad_trees, 1);
  EXPECT_EQ(verdict.num_bad_in_a_row, 2);
  EXPECT_THAT(verdict.first_fault, HasSubstr("session 77"));
  EXPECT_EQ(Tree(10, 1, 1).num_bad_in_a_row, 0);
}

TEST_F(SessionBookTest, LongContextsTravelInPiecesBetweenOtherSessionsAdvances) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5});
  Next(10);
  const std::vector<int32_t> context = Count(0, 40'000);
  Open(2, context);
  book_.Advance(2, {}, {.node_budget = 8, .proposers = kEverybody});
  std::vector<uint32_t> heard;
  int num_messages = 0;
  for (bool awaits_more = true; awaits_more; ++num_messages) {
    ASSERT_LT(num_messages, 10);
    book_.Advance(1, std::vector<int32_t>{num_messages}, {.node_budget = 8, .proposers = kEverybody});
    const v1::ProposeRequest request = Next(10);
    EXPECT_LE(request.ByteSizeLong(), 64 * 1024 + 200);
    ASSERT_EQ(request.opens_size(), num_messages == 0 ? 1 : 0);
    ASSERT_EQ(request.advances_size(), num_messages == 0 ? 1 : 2);
    bool has_short = false;
    for (const v1::AdvanceSession& advance : request.advances()) {
      if (advance.session_id() == 1) {
        has_short = true;
        continue;
      }
      EXPECT_EQ(advance.base_position(), heard.size());
      heard.insert(heard.end(), advance.token_ids().begin(), advance.token_ids().end());
      awaits_more = advance.awaiting_more();
      EXPECT_EQ(advance.node_budget(), 8);
    }
    EXPECT_TRUE(has_short);
    for (const v1::OpenSession& open : request.opens()) {
      heard.assign(open.token_ids().begin(), open.token_ids().end());
      EXPECT_TRUE(open.awaiting_more());
    }
  }
  EXPECT_GE(num_messages, 3);
  EXPECT_EQ(heard, std::vector<uint32_t>(context.begin(), context.end()));
  EXPECT_FALSE(book_.NextRequest(10, kNow).has_value());
}

TEST_F(SessionBookTest, SessionsSpreadOverReplicasAndMoveWhenOneLeaves) {
  book_.AddReplica(10, 0, {}, kNow);
  book_.AddReplica(11, 0, {}, kNow);
  for (SequenceId id = 1; id <= 6; ++id) Open(id, {5});
  EXPECT_EQ(book_.num_sessions(10), 3);
  EXPECT_EQ(book_.num_sessions(11), 3);
  book_.RemoveReplica(10, kNow);
  EXPECT_EQ(book_.num_sessions(11), 6);
  EXPECT_EQ(book_.totals(0).num_moved, 3);
  EXPECT_EQ(Next(11).opens_size(), 6);
}

// It may hang, and come back after each silence.
TEST_F(SessionBookTest, AReplicaThatHasNotAnsweredGetsOneSessionBesideOneThatHas) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5});
  book_.AddReplica(11, 0, {}, kNow);
  Next(10);
  Tree(10, 1, 1);
  for (SequenceId id = 2; id <= 6; ++id) Open(id, {5});
  EXPECT_EQ(book_.num_sessions(10), 5);
  EXPECT_EQ(book_.num_sessions(11), 1);
  Next(11);
  Tree(11, 1, 1);
  for (SequenceId id = 7; id <= 8; ++id) Open(id, {5});
  EXPECT_EQ(book_.num_sessions(11), 3) << "it has answered, and has the fewest";
}

TEST_F(SessionBookTest, ASequenceWithoutReplicasIsOpenedWithAllItsTokensWhenOneComes) {
  Open(1, {5});
  book_.Advance(1, std::vector<int32_t>{6, 7}, {.node_budget = 32, .proposers = kEverybody});
  book_.AddReplica(10, 0, {}, kNow);
  const v1::ProposeRequest request = Next(10);
  ASSERT_THAT(request.opens(), SizeIs(1));
  EXPECT_THAT(request.opens(0).token_ids(), ElementsAre(5));
  EXPECT_EQ(request.opens(0).node_budget(), 0);
  ASSERT_THAT(request.advances(), SizeIs(1));
  EXPECT_THAT(request.advances(0).token_ids(), ElementsAre(6, 7));
  EXPECT_EQ(request.advances(0).node_budget(), 32);
}

TEST_F(SessionBookTest, ARefusedSequenceTriesAnotherReplicaThenWaitsWithBackoff) {
  book_.AddReplica(10, 0, {}, kNow);
  book_.AddReplica(11, 0, {}, kNow);
  Open(1, {5});
  Next(10);
  Refuse(10, 1);
  EXPECT_EQ(Next(11).opens_size(), 1);
  EXPECT_FALSE(book_.NextRetry().has_value());
  Refuse(11, 1);
  ASSERT_TRUE(book_.NextRetry().has_value());
  const absl::Time retry_at = *book_.NextRetry();
  EXPECT_GE(retry_at, kNow + kRetry.initial / 2);
  EXPECT_LE(retry_at, kNow + kRetry.initial);
  book_.RetryRefused(retry_at - absl::Milliseconds(1));
  EXPECT_EQ(book_.num_sessions(10) + book_.num_sessions(11), 0);
  book_.RetryRefused(retry_at);
  EXPECT_EQ(book_.num_sessions(10) + book_.num_sessions(11), 1);
  EXPECT_EQ(Next(10).opens(0).session_id(), 2);  // ids are never reused
}

TEST_F(SessionBookTest, AnUnknownSessionIsReopenedUnderANewIdButNotForever) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5, 6});
  Next(10);
  Unknown(10, 1);
  const v1::ProposeRequest request = Next(10);
  ASSERT_THAT(request.opens(), SizeIs(1));
  EXPECT_EQ(request.opens(0).session_id(), 2);
  EXPECT_THAT(request.opens(0).token_ids(), ElementsAre(5, 6));
  Unknown(10, 2);
  EXPECT_EQ(Next(10).opens_size(), 1);
  Unknown(10, 3);
  EXPECT_FALSE(book_.NextRequest(10, kNow).has_value());
  EXPECT_TRUE(book_.NextRetry().has_value());
}

TEST_F(SessionBookTest, TreesBetweenRefusalsDoNotResetTheBackoff) {
  for (const bool refuses : {false, true}) {
    const ReplicaId replica = refuses ? 20 : 10;
    book_.AddReplica(replica, refuses ? 1 : 0, {}, kNow);
    Open(refuses ? 2 : 1, {5, 6}, /*proposers=*/refuses ? 0b10 : 0b01);
    int num_opens = 0;
    for (absl::Time now = kNow; now < kNow + absl::Seconds(10); now += absl::Milliseconds(1)) {
      book_.RetryRefused(now);
      const v1::ProposeRequest request = book_.NextRequest(replica, now).value_or(v1::ProposeRequest());
      for (const v1::OpenSession& open : request.opens()) {
        ++num_opens;
        EXPECT_EQ(Tree(replica, open.session_id(), 2, now).num_trees, 1);
        refuses ? Refuse(replica, open.session_id(), now) : Unknown(replica, open.session_id(), now);
      }
    }
    // Three opens at once, then opens after at least 50, 100, 200 and 400 ms, and then two per second at most.
    EXPECT_LE(num_opens, 3 + 4 + 19);
    EXPECT_GE(num_opens, 8) << "the book keeps trying";
  }
}

TEST_F(SessionBookTest, ASessionThatLastedResetsTheCount) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5, 6});
  absl::Time now = kNow;
  uint64_t session_id = 1;
  for (int unknown = 0; unknown < 3; ++unknown) {
    Next(10);
    Unknown(10, session_id++, now);
  }
  EXPECT_FALSE(book_.NextRequest(10, now).has_value());
  now = book_.NextRetry().value();
  book_.RetryRefused(now);
  ASSERT_EQ(book_.NextRequest(10, now)->opens(0).session_id(), session_id);
  Tree(10, session_id, 2, now + kRetry.max);
  Unknown(10, session_id, now + kRetry.max);
  EXPECT_TRUE(book_.NextRequest(10, now + kRetry.max).has_value()) << "at once";
}

TEST_F(SessionBookTest, StatedLimitsAreKept) {
  book_.AddReplica(10, 0, {.max_sessions = 1, .max_context_tokens = 3}, kNow);
  Open(1, {5, 6, 7, 8});
  EXPECT_EQ(book_.num_sessions(10), 0);
  Open(2, {5});
  Open(3, {5});
  EXPECT_EQ(book_.num_sessions(10), 1);
  book_.Close(2);
  Next(10);
  book_.RetryRefused(kNow + kRetry.max);
  EXPECT_EQ(Next(10).opens_size(), 1);  // sequence 3
}

TEST_F(SessionBookTest, AFullReplicaIsToldOfAClosedSessionBeforeTheNextOpens) {
  book_.AddReplica(10, 0, {.max_sessions = 1}, kNow);
  Open(1, {5});
  ASSERT_EQ(Next(10).opens_size(), 1);
  book_.Close(1);
  Open(2, {5});
  const v1::ProposeRequest closing = Next(10);
  EXPECT_EQ(closing.closes_size(), 1);
  EXPECT_EQ(closing.opens_size(), 0);
  book_.RetryRefused(kNow + kRetry.max);
  EXPECT_EQ(Next(10).opens_size(), 1);
}

TEST_F(SessionBookTest, TheRoomOfAClosedSessionGoesToTheSequenceThatWaitsForLongest) {
  book_.AddReplica(10, 0, {.max_sessions = 1}, kNow);
  Open(1, {5});
  ASSERT_EQ(Next(10).opens_size(), 1);
  Open(2, {6});
  Open(3, {7});
  book_.Close(1);
  Open(4, {8});
  EXPECT_EQ(Next(10).closes_size(), 1);
  const v1::ProposeRequest opening = Next(10);
  ASSERT_EQ(opening.opens_size(), 1);
  EXPECT_EQ(opening.opens(0).token_ids(0), 6);
}

TEST_F(SessionBookTest, ASequenceHasOneSessionPerAllowedProposer) {
  book_.AddReplica(10, 0, {}, kNow);
  book_.AddReplica(20, 1, {}, kNow);
  Open(1, {5}, 0b11);
  Open(2, {5}, 0b10);
  EXPECT_EQ(book_.num_sessions(10), 1);
  EXPECT_EQ(book_.num_sessions(20), 2);
  Next(10);
  Next(20);
  Tree(10, 1, 1);
  Tree(20, 1, 1);
  EXPECT_THAT(book_.TakeProposals(), SizeIs(2));
}

}  // namespace
}  // namespace foretoken::verifier
