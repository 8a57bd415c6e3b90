// SPDX-License-Identifier: Apache-2.0
// Waits for answers, and the silence of replicas. If this test fails, steps wait for proposers in vain, or a replica
// that never answers keeps its sequences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/verifier_service/proposers/session_book_fixture.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WaitTest : public SessionBookTest {
 protected:
  void Ask(absl::Time now, int32_t node_budget = 8) {
    book_.Advance(1, std::vector<int32_t>{1}, {.node_budget = node_budget, .proposers = kEverybody});
    book_.MarkFlushed(10, {}, now);
    book_.NextRequest(10, now);
    ++position_;
  }
  void SetUp() override {
    book_.AddReplica(10, 0, {}, kNow);
    Open(1, {5});
    Next(10);
  }
  uint64_t position_ = 1;
};

TEST_F(WaitTest, NothingIsDueUnlessATreeWasAskedFor) {
  EXPECT_FALSE(book_.WaitUntil(kNow, kNow + absl::Seconds(1)).has_value());
  Ask(kNow, 0);
  EXPECT_FALSE(book_.WaitUntil(kNow, kNow + absl::Seconds(1)).has_value());
  Ask(kNow);
  EXPECT_EQ(book_.WaitUntil(kNow, kNow + absl::Seconds(1)), kNow + absl::Seconds(1));
  EXPECT_EQ(book_.SilentSince(10), kNow);
  EXPECT_FALSE(Tree(10, 1, position_ - 1).ends_wait);  // a tree of the previous position
  EXPECT_TRUE(Tree(10, 1, position_).ends_wait);
  EXPECT_FALSE(book_.WaitUntil(kNow, kNow + absl::Seconds(1)).has_value());
  EXPECT_FALSE(book_.SilentSince(10).has_value());
}

// The stream was still writing when the question was flushed.
TEST_F(WaitTest, NothingIsDueIfTheQuestionWasTakenBackBeforeItWasWritten) {
  book_.Advance(1, kTokens, {.node_budget = 8, .proposers = kEverybody});
  book_.MarkFlushed(10, {}, kNow);
  EXPECT_TRUE(book_.SilentSince(10).has_value());
  book_.Advance(1, kTokens, {.node_budget = 0, .proposers = kEverybody});
  EXPECT_EQ(Next(10).advances(0).node_budget(), 0);
  book_.MarkFlushed(10, {}, kNow);
  EXPECT_FALSE(book_.SilentSince(10).has_value());
}

// The estimate of the 90th percentile stays within a tenth of the answers' equal times.
TEST_F(WaitTest, LastsForHalfAsLongAgainAsTheReplicaUsuallyTakes) {
  absl::Time now = kNow;
  for (int i = 0; i < 50; ++i) {
    Ask(now);
    now += absl::Microseconds(100);
    Tree(10, 1, position_, now);
  }
  Ask(now);
  const absl::Time until = book_.WaitUntil(now, now + absl::Seconds(1)).value();
  EXPECT_GT(until, now + absl::Microseconds(140));
  EXPECT_LT(until, now + absl::Microseconds(170));
  EXPECT_EQ(book_.WaitUntil(now, now + absl::Microseconds(20)), now + absl::Microseconds(20));
  EXPECT_FALSE(book_.WaitUntil(now + absl::Milliseconds(1), now + absl::Seconds(1)).has_value());
}

TEST_F(WaitTest, AReplicaThatKeepsMissingTheWaitIsRarelyWaitedFor) {
  absl::Time now = kNow;
  int num_waits = 0;
  for (int i = 0; i < 100; ++i) {
    now += absl::Milliseconds(10);
    Ask(now);
    if (book_.WaitUntil(now, now + absl::Milliseconds(1)).has_value()) ++num_waits;
    book_.EndWait();
  }
  EXPECT_GE(num_waits, 5);
  EXPECT_LE(num_waits, 12);
  Tree(10, 1, position_, now);
  book_.EndWait();
  Ask(now);
  EXPECT_TRUE(book_.WaitUntil(now, now + absl::Milliseconds(1)).has_value());
}

TEST_F(WaitTest, SilenceOutlastsItsSessions) {
  absl::Time now = kNow;
  Ask(now);
  for (SequenceId id = 2; id < 12; ++id) {  // one after the other, each closed before an answer
    now += absl::Milliseconds(100);
    book_.MarkFlushed(10, {}, now);
    book_.Close(id - 1);
    EXPECT_FALSE(book_.SilentSince(10).has_value());  // no answer is due
    now += absl::Minutes(1);                          // does not count as silence
    book_.Open({.sequence_id = id, .token_ids = kTokens, .proposers = 1}, now);
    book_.Advance(id, kTokens, {.node_budget = 8, .proposers = ~0u});
    book_.MarkFlushed(10, {}, now);
    book_.NextRequest(10, now);
    EXPECT_EQ(now - book_.SilentSince(10).value(), absl::Milliseconds(100) * (static_cast<int>(id) - 1));
  }
  Tree(10, 11, 2, now);
  EXPECT_FALSE(book_.SilentSince(10).has_value());
}

TEST_F(WaitTest, AReplicaThatIsAlwaysLateIsNotSilent) {
  absl::Time now = kNow;
  for (int i = 0; i < 10; ++i) {
    now += absl::Seconds(1);
    Ask(now);
    Tree(10, 1, position_ - 1, now);  // answers the previous question
    EXPECT_EQ(book_.SilentSince(10), now);
  }
}

TEST_F(WaitTest, ALateAnswerBelongsToItsOwnQuestion) {
  const auto after = [](int ms) { return kNow + absl::Milliseconds(ms); };
  const auto asked = [this] { return book_.TakeProposals().at(0).asked; };
  Ask(kNow);
  Ask(after(5));
  EXPECT_THAT(Tree(10, 1, position_ - 1, after(20)).round_trips, ElementsAre(absl::Milliseconds(20)));
  EXPECT_EQ(asked(), kNow);
  EXPECT_THAT(Tree(10, 1, position_, after(35)).round_trips, ElementsAre(absl::Milliseconds(30)));
  EXPECT_EQ(asked(), after(5));
  EXPECT_THAT(Tree(10, 1, position_, after(40)).round_trips, IsEmpty()) << "one answer per question";
  EXPECT_EQ(asked(), after(5)) << "a better tree for the same question";
}

TEST_F(WaitTest, AnAnswerClosesTheOlderQuestions) {
  Ask(kNow);
  Ask(kNow + absl::Milliseconds(5));
  EXPECT_THAT(Tree(10, 1, position_, kNow + absl::Milliseconds(20)).round_trips, ElementsAre(absl::Milliseconds(15)));
  EXPECT_THAT(Tree(10, 1, position_ - 1, kNow + absl::Milliseconds(25)).round_trips, IsEmpty());
}

TEST_F(WaitTest, AProposerThatNeverAnswersLeavesFewQuestions) {
  const auto after = [](int ms) { return kNow + absl::Milliseconds(ms); };
  constexpr int kNumQuestions = 100;
  for (int i = 0; i < kNumQuestions; ++i) Ask(after(i));
  const uint64_t first = position_ - kNumQuestions + 1;
  EXPECT_THAT(Tree(10, 1, first, after(200)).round_trips, IsEmpty()) << "the question is forgotten";
  const uint64_t oldest = position_ - OpenQuestions::kMaxQuestions + 1;
  EXPECT_THAT(Tree(10, 1, oldest, after(200)).round_trips,
              ElementsAre(absl::Milliseconds(200 - (kNumQuestions - static_cast<int>(OpenQuestions::kMaxQuestions)))));
}

TEST_F(WaitTest, UnrequestedMessagesDoNotEndASilence) {
  const auto after = [](int seconds) { return kNow + absl::Seconds(seconds); };
  Open(2, {5}, /*proposers=*/1, /*told_proposers=*/kEverybody);  // receives tokens, but no question
  Open(3, {5});
  Next(10);
  book_.Close(3);
  Ask(kNow);
  book_.TakeAnswer(10, {}, after(1));
  EXPECT_EQ(book_.SilentSince(10), kNow) << "an empty message";
  Tree(10, 2, 1, after(2));
  Tree(10, 3, 1, after(2));
  Tree(10, 77, 1, after(2));
  EXPECT_EQ(book_.SilentSince(10), kNow) << "trees of sessions that were not asked, that ended, or that never existed";
  Unknown(10, 2, after(3));
  Refuse(10, 3, after(3));
  Refuse(10, 77, after(3));
  EXPECT_EQ(book_.SilentSince(10), kNow);
  Tree(10, 1, 1, after(4));
  EXPECT_EQ(book_.SilentSince(10), after(4)) << "a late answer";
  Tree(10, 1, 1, after(5));
  EXPECT_EQ(book_.SilentSince(10), after(4)) << "the same again";
}

TEST_F(WaitTest, LateAnswersOfAnEndedSessionEndASilenceWhileTheirPositionsIncrease) {
  const auto after = [](int seconds) { return kNow + absl::Seconds(seconds); };
  Open(2, {5});
  Next(10);
  Ask(kNow);
  Ask(kNow);
  book_.Close(1);
  book_.Advance(2, kTokens, {.node_budget = 8, .proposers = kEverybody});
  book_.MarkFlushed(10, {}, kNow);
  book_.NextRequest(10, kNow);
  Tree(10, 1, 2, after(3));
  EXPECT_EQ(book_.SilentSince(10), after(3));
  Tree(10, 1, 2, after(6));
  EXPECT_EQ(book_.SilentSince(10), after(3)) << "the same again";
  Tree(10, 1, 3, after(7));
  EXPECT_EQ(book_.SilentSince(10), after(7));
  Tree(10, 1, 4, after(9));
  EXPECT_EQ(book_.SilentSince(10), after(7)) << "a later answer than the book asked for";
}

// A draft model does not answer for a session that ends while it computes.
TEST_F(WaitTest, ManySessionsThatNobodyAnsweredLeaveRoomForALateAnswer) {
  const auto ask_for = [&](SequenceId id) {
    book_.Open({.sequence_id = id, .token_ids = kTokens, .proposers = 1}, kNow);
    book_.Advance(id, kTokens, {.node_budget = 8, .proposers = kEverybody});
    book_.MarkFlushed(10, {}, kNow);
    book_.NextRequest(10, kNow);
  };
  constexpr SequenceId kLast = 2000;
  book_.Close(1);  // session 1 is the fixture's
  for (SequenceId id = 2; id <= kLast; ++id) {
    ask_for(id);
    if (id < kLast) book_.Close(id);
  }
  ASSERT_EQ(book_.SilentSince(10), kNow);
  const absl::Time later = kNow + absl::Seconds(3);
  Tree(10, 2, 2, later);
  EXPECT_EQ(book_.SilentSince(10), kNow) << "forgotten";
  Tree(10, kLast - 1, 2, later);
  EXPECT_EQ(book_.SilentSince(10), later);
}

TEST_F(WaitTest, ABadTreeIsAnAnswer) {
  Ask(kNow);
  CheckedAnswer answer;
  answer.trees.push_back({1, absl::InvalidArgumentError("bad")});
  EXPECT_TRUE(book_.TakeAnswer(10, std::move(answer), kNow).ends_wait);
}

TEST_F(WaitTest, ClosingAndRefusingEndTheWait) {
  Ask(kNow);
  Refuse(10, 1);
  EXPECT_FALSE(book_.WaitUntil(kNow, kNow + absl::Seconds(1)).has_value());
  book_.RetryRefused(kNow + kRetry.max);
  Next(10);
  EXPECT_TRUE(book_.WaitUntil(kNow, kNow + absl::Seconds(1)).has_value());
  book_.Close(1);
  EXPECT_FALSE(book_.WaitUntil(kNow, kNow + absl::Seconds(1)).has_value());
}

TEST(RoundTripEstimate, SettlesNearTheNinetiethPercentile) {
  std::mt19937_64 random(1);
  RoundTripEstimate estimate;
  EXPECT_FALSE(estimate.p90().has_value());
  for (int i = 0; i < 5000; ++i) {
    estimate.Add(absl::Microseconds(std::uniform_int_distribution<int>(100, 200)(random)));
  }
  EXPECT_GT(*estimate.p90(), absl::Microseconds(175));
  EXPECT_LT(*estimate.p90(), absl::Microseconds(215));
}

TEST(Backoff, DoublesUpToItsCapAndSpreads) {
  const Backoff backoff{.initial = absl::Milliseconds(100), .max = absl::Seconds(5)};
  EXPECT_EQ(BackoffDelay(backoff, 1, 0), absl::Milliseconds(50));
  EXPECT_EQ(BackoffDelay(backoff, 1, .5), absl::Milliseconds(75));
  EXPECT_EQ(BackoffDelay(backoff, 3, 0), absl::Milliseconds(200));
  EXPECT_EQ(BackoffDelay(backoff, 10, 0), absl::Milliseconds(2500));
  EXPECT_EQ(BackoffDelay(backoff, 1'000'000, 0), absl::Milliseconds(2500));
}

}  // namespace
}  // namespace foretoken::verifier
