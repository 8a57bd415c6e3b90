// SPDX-License-Identifier: Apache-2.0
// The protocol of a stream without gRPC. If these tests fail, sessions lose their guesses, or a verifier's mistake
// harms more than its own session.
#include "proposer_service/session_table.h"

#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/ngram/ngram.h"
#include "proposer_service/suffix/suffix.h"
#include "tests/proposer_service/session_table_fixture.h"

namespace foretoken::proposer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(SessionTableTest, AnOpenIsAnsweredByATree) {
  Stream stream(*this);
  stream.Open(7, {1, 2, 3, 1}, 2);
  const v1::ProposeResponse& response = stream.Exchange();
  ASSERT_EQ(response.trees_size(), 1);
  EXPECT_EQ(response.trees(0).session_id(), 7);
  EXPECT_EQ(response.trees(0).position(), 4);
  EXPECT_THAT(response.trees(0).token_ids(), ElementsAre(2, 3));
  EXPECT_THAT(response.trees(0).parents(), ElementsAre(-1, 0));
  EXPECT_FALSE(stream.table.HasResponse());
}

TEST_F(SessionTableTest, TellsTheRuleAndTakesAnUnknownRuleForTheKeyedDraw) {
  RuleRecordingProposer proposer;
  SessionRoom room({.max_sessions = 8}, metrics_.room());
  SessionTable table({.proposer = proposer, .room = room, .metrics = metrics_});
  v1::ProposeRequest request;
  for (const int rule : {v1::VERIFICATION_RULE_UNSPECIFIED, v1::VERIFICATION_RULE_KEYED_DRAW,
                         v1::VERIFICATION_RULE_REJECTION_SAMPLING, static_cast<v1::VerificationRule>(77)}) {
    v1::OpenSession& open = *request.add_opens();
    open.set_session_id(static_cast<uint64_t>(request.opens_size()));
    open.set_rule(static_cast<v1::VerificationRule>(rule));
  }
  EXPECT_TRUE(table.Apply(request).ok());
  using enum kernels::VerificationRule;
  EXPECT_THAT(proposer.rules, ElementsAre(kKeyedDraw, kKeyedDraw, kRejectionSampling, kKeyedDraw));
}

TEST_F(SessionTableTest, AnAdvanceIsAnsweredAtItsNewPositionEvenWithoutAGuess) {
  Stream stream(*this);
  stream.Open(1, {1, 2}, 0);
  stream.Advance(1, 2, {3, 4}, 5);
  const v1::ProposeResponse& response = stream.Exchange();
  ASSERT_EQ(response.trees_size(), 1);
  EXPECT_EQ(response.trees(0).position(), 4);
  EXPECT_THAT(response.trees(0).token_ids(), IsEmpty());
}

TEST_F(SessionTableTest, NoBudgetMeansNoTree) {
  Stream stream(*this);
  stream.Open(1, {1, 1}, 0);
  stream.Advance(1, 2, {1}, 0);
  stream.Apply();
  EXPECT_FALSE(stream.table.HasResponse());
}

// Records the tree requests of its sessions.
class RequestRecordingProposer : public NgramProposer {
 public:
  RequestRecordingProposer() : NgramProposer({}) {}
  std::unique_ptr<Session> Open(const SessionIntroduction& /*introduction*/) override {
    return std::make_unique<Mirror>(*this);
  }
  std::vector<TreeRequest> requests;

 private:
  struct Mirror : Session {
    explicit Mirror(RequestRecordingProposer& owner) : proposer(owner) {}
    void Append(std::span<const int32_t> token_ids) override { num_tokens += token_ids.size(); }
    void Want(const TreeRequest& tree_request) override { proposer.requests.push_back(tree_request); }
    uint64_t position() const override { return num_tokens; }
    RequestRecordingProposer& proposer;
    uint64_t num_tokens = 0;
  };
};

TEST_F(SessionTableTest, PassesTheRequestOnceTheTokensAreWhole) {
  RequestRecordingProposer proposer;
  Stream stream({.proposer = proposer, .room = room_, .metrics = metrics_});
  stream.Open(1, {1, 2}, 4).set_awaiting_more(true);
  stream.Advance(1, 2, {3}, 5);
  stream.Apply();
  v1::AdvanceSession& advance = stream.Advance(1, 3, {4}, 99);
  advance.set_next_step_us(1500);
  advance.set_step_us(80000);
  stream.Apply();
  stream.Advance(1, 4, {5}, 0);
  stream.Apply();
  ASSERT_EQ(proposer.requests.size(), 3);
  EXPECT_EQ(proposer.requests[0].node_budget, 5);
  EXPECT_EQ(proposer.requests[0].step, absl::ZeroDuration());
  EXPECT_EQ(proposer.requests[1].node_budget, limits_.max_tree_nodes);
  EXPECT_EQ(proposer.requests[1].until_next_step, absl::Microseconds(1500));
  EXPECT_EQ(proposer.requests[1].step, absl::Milliseconds(80));
  EXPECT_EQ(proposer.requests[2].node_budget, 0);
}

// A request costs a drafter more than the few bytes that it takes in a message, and other streams wait meanwhile.
TEST_F(SessionTableTest, OfAMessagesRequestsForASessionTheLastOneCounts) {
  RequestRecordingProposer proposer;
  Stream stream({.proposer = proposer, .room = room_, .metrics = metrics_});
  stream.Open(1, {1}, 4);
  stream.Open(2, {1}, 3);
  for (uint32_t budget = 5; budget <= 7; ++budget) stream.Advance(1, 1, {}, budget);
  stream.Open(2, {1}, 3);  // an id that is in use: the session is dropped
  stream.Open(2, {1}, 2);
  stream.Apply();
  ASSERT_EQ(proposer.requests.size(), 3);
  EXPECT_EQ(proposer.requests[0].node_budget, 4);  // the first one, which ends the opening context
  EXPECT_EQ(proposer.requests[1].node_budget, 7);
  EXPECT_EQ(proposer.requests[2].node_budget, 2);
  stream.Advance(1, 1, {2}, 6);
  stream.Advance(1, 2, {2}, 5);
  stream.Apply();
  ASSERT_EQ(proposer.requests.size(), 4);
  EXPECT_EQ(proposer.requests[3].node_budget, 5);
}

TEST_F(SessionTableTest, ATreeThatIsNoLongerWantedIsNotSent) {
  Stream stream(*this);
  stream.Open(1, {1, 1, 1}, 4);
  stream.Apply();
  stream.Advance(1, 3, {1}, 0);
  stream.Apply();
  EXPECT_FALSE(stream.table.TakeResponse(stream.response));
  stream.table.Announce(1);
  EXPECT_FALSE(stream.table.HasResponse());
  stream.Advance(1, 4, {}, 2);
  EXPECT_EQ(stream.Exchange().trees(0).token_ids_size(), 2);
}

TEST_F(SessionTableTest, PiecesOfAContextAreAnsweredOnceItIsWhole) {
  Stream stream(*this);
  stream.Open(1, {1, 2}, 4).set_awaiting_more(true);
  stream.Advance(1, 2, {3, 4}, 4).set_awaiting_more(true);
  stream.Apply();
  EXPECT_FALSE(stream.table.HasResponse());
  stream.Advance(1, 4, {1}, 4);
  EXPECT_EQ(stream.Exchange().trees(0).position(), 5);
}

TEST_F(SessionTableTest, ASessionIsToldWhereItsOpeningContextEnds) {
  SuffixProposer suffix({});
  Stream stream({.proposer = suffix, .room = room_, .metrics = metrics_});
  // An opening context in pieces, without a request for a tree, and then an output.
  stream.Open(1, {10, 11, 12, 13, 14, 15}, 0).set_awaiting_more(true);
  stream.Advance(1, 6, {16, 17, 18, 19, 20, 21, 22}, 0);
  for (uint32_t position = 13; position < 20; ++position) stream.Advance(1, position, {30 + position}, 0);
  stream.Close(1);
  stream.Apply();
  suffix.WaitUntilLearned();
  stream.Open(2, {43, 44, 45}, 1);
  EXPECT_THAT(stream.Exchange().trees(0).token_ids(), ElementsAre(46)) << "output is learned";
  stream.Open(3, {10, 11, 12}, 1);
  EXPECT_THAT(stream.Exchange().trees(0).token_ids(), IsEmpty()) << "context is not";
}

TEST_F(SessionTableTest, AdvancesBetweenAnswersCoalesceIntoOneTree) {
  Stream stream(*this);
  stream.Open(1, {1, 2, 1, 2}, 4);
  stream.Apply();
  stream.Advance(1, 4, {1}, 4);
  stream.Apply();
  stream.Advance(1, 5, {2}, 3);
  const v1::ProposeResponse& response = stream.Exchange();
  ASSERT_EQ(response.trees_size(), 1);
  EXPECT_EQ(response.trees(0).position(), 6);
  EXPECT_EQ(response.trees(0).token_ids_size(), 3);
}

TEST_F(SessionTableTest, AGapInPositionsMakesTheSessionUnknown) {
  Stream stream(*this);
  stream.Open(1, {1, 2}, 4);
  stream.Advance(1, 3, {1}, 4);
  EXPECT_THAT(stream.Exchange().unknown_session_ids(), ElementsAre(1));
  EXPECT_EQ(stream.response.trees_size(), 0);
  stream.Advance(1, 2, {1}, 4);
  EXPECT_THAT(stream.Exchange().unknown_session_ids(), ElementsAre(1)) << "a dropped session stays unknown";
}

TEST_F(SessionTableTest, AnIdOpenedTwiceIsDropped) {
  Stream stream(*this);
  stream.Open(1, {1}, 4);
  stream.Open(1, {1}, 4);
  EXPECT_THAT(stream.Exchange().unknown_session_ids(), ElementsAre(1));
  EXPECT_EQ(stream.response.trees_size(), 0);
}

TEST_F(SessionTableTest, AStreamsEndFreesItsSessions) {
  {
    Stream stream(*this);
    for (uint64_t id = 0; id < 3; ++id) stream.Open(id, {1}, 0);
    stream.Apply();
    EXPECT_EQ(metrics_.sessions.Value(), 3);
  }
  EXPECT_EQ(metrics_.sessions.Value(), 0);
  EXPECT_EQ(metrics_.tokens.Value(), 0);
  EXPECT_TRUE(room_.TryTakeSession());
}

TEST_F(SessionTableTest, BudgetsAreCutToTheLimit) {
  Stream stream(*this);
  stream.Open(1, std::vector<uint32_t>(50, 1), std::numeric_limits<uint32_t>::max());
  EXPECT_EQ(stream.Exchange().trees(0).token_ids_size(), limits_.max_tree_nodes);
}

TEST_F(SessionTableTest, AClosedSessionGetsNoTree) {
  Stream stream(*this);
  stream.Open(1, {1, 1, 1}, 4);
  stream.Close(1);
  stream.Close(99);
  stream.Apply();
  EXPECT_FALSE(stream.table.HasResponse());
}

TEST_F(SessionTableTest, HostileEventsNeverBreakTheRules) {
  std::mt19937 random(5);
  Stream stream(*this);
  for (int32_t round = 0; round < 5000; ++round) {
    for (uint32_t i = 0; i < random() % 6; ++i) {
      const uint64_t id = random() % 6;
      std::vector<uint32_t> token_ids(random() % 30);
      for (uint32_t& token_id : token_ids) token_id = random() % 200 == 0 ? random() : random() % 3;
      const uint32_t budget = random() % 4 == 0 ? random() : random() % 8;
      switch (random() % 3) {
        case 0:
          stream.Open(id, token_ids, budget).set_awaiting_more(random() % 4 == 0);
          break;
        case 1:
          stream.Advance(id, random() % 40, token_ids, budget).set_awaiting_more(random() % 4 == 0);
          break;
        default:
          stream.Close(id);
      }
    }
    stream.Apply();
    if (random() % 3 != 0) continue;
    ASSERT_LE(stream.Exchange().trees_size(), limits_.max_sessions);
    for (const v1::TokenTree& tree : stream.response.trees()) ASSERT_LE(tree.token_ids_size(), limits_.max_tree_nodes);
    ASSERT_LE(metrics_.sessions.Value(), limits_.max_sessions);
    ASSERT_GE(metrics_.sessions.Value(), 0);
    ASSERT_LE(metrics_.tokens.Value(), limits_.max_total_tokens);
    ASSERT_GE(metrics_.tokens.Value(), 0);
  }
}

}  // namespace
}  // namespace foretoken::proposer
