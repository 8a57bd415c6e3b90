// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/session_table.h"

#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/ngram.h"
#include "proposer_service/suffix.h"

namespace foretoken::proposer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SessionTableTest : public ::testing::Test {
 protected:
  // A table with its own requests and answers.
  struct Stream {
    explicit Stream(SessionTableTest& test)
        : Stream({.proposer = test.proposer_, .slots = test.slots_, .metrics = test.metrics_, .limits = test.limits_}) {
    }
    explicit Stream(const SessionTable::Environment& environment) : table(environment) {}

    v1::OpenSession& Open(uint64_t session_id, const std::vector<uint32_t>& token_ids, uint32_t node_budget) {
      v1::OpenSession& open = *request.add_opens();
      open.set_session_id(session_id);
      open.mutable_token_ids()->Add(token_ids.begin(), token_ids.end());
      open.set_node_budget(node_budget);
      return open;
    }
    v1::AdvanceSession& Advance(uint64_t session_id, uint64_t base_position, const std::vector<uint32_t>& token_ids,
                                uint32_t node_budget) {
      v1::AdvanceSession& advance = *request.add_advances();
      advance.set_session_id(session_id);
      advance.set_base_position(base_position);
      advance.mutable_token_ids()->Add(token_ids.begin(), token_ids.end());
      advance.set_node_budget(node_budget);
      return advance;
    }
    void Close(uint64_t session_id) { request.add_closes()->set_session_id(session_id); }
    void Apply() {
      table.Apply(request);
      request.Clear();
    }
    const v1::ProposeResponse& Exchange() {
      Apply();
      table.TakeNews(response);
      return response;
    }

    v1::ProposeRequest request;
    v1::ProposeResponse response;
    SessionTable table;
  };

  telemetry::Metrics registry_;
  ProposerMetrics metrics_{registry_, {}};
  SessionLimits limits_ = {.max_sessions = 3, .max_context_tokens = 100, .max_tree_nodes = 10};
  SessionSlots slots_{limits_.max_sessions, metrics_.sessions};
  NgramProposer proposer_{{}};
};

TEST_F(SessionTableTest, AnOpenIsAnsweredByATree) {
  Stream stream(*this);
  stream.Open(7, {1, 2, 3, 1}, 2);
  const v1::ProposeResponse& response = stream.Exchange();
  ASSERT_EQ(response.trees_size(), 1);
  EXPECT_EQ(response.trees(0).session_id(), 7);
  EXPECT_EQ(response.trees(0).position(), 4);
  EXPECT_THAT(response.trees(0).token_ids(), ElementsAre(2, 3));
  EXPECT_THAT(response.trees(0).parents(), ElementsAre(-1, 0));
  EXPECT_FALSE(stream.table.HasNews());
}

// Writes down under which rule its sessions are opened.
class RecordingProposer : public NgramProposer {
 public:
  RecordingProposer() : NgramProposer({}) {}
  std::unique_ptr<Session> Open(const SessionIntroduction& introduction) override {
    rules.push_back(introduction.rule);
    return NgramProposer::Open(introduction);
  }
  std::vector<kernels::VerificationRule> rules;
};

TEST_F(SessionTableTest, TellsTheRuleAndTakesAnUnknownOneForTheKeyedDraw) {
  RecordingProposer proposer;
  const SessionLimits limits = {.max_sessions = 4, .max_context_tokens = 100, .max_tree_nodes = 10};
  SessionSlots slots(limits.max_sessions, metrics_.sessions);
  SessionTable table({.proposer = proposer, .slots = slots, .metrics = metrics_, .limits = limits});
  v1::ProposeRequest request;
  for (const int rule : {v1::VERIFICATION_RULE_UNSPECIFIED, v1::VERIFICATION_RULE_KEYED_DRAW,
                         v1::VERIFICATION_RULE_REJECTION_SAMPLING, static_cast<v1::VerificationRule>(77)}) {
    v1::OpenSession& open = *request.add_opens();
    open.set_session_id(static_cast<uint64_t>(request.opens_size()));
    open.set_rule(static_cast<v1::VerificationRule>(rule));
  }
  table.Apply(request);
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
  EXPECT_FALSE(stream.table.HasNews());
}

// Writes down what is wanted of its sessions.
class WishfulProposer : public NgramProposer {
 public:
  WishfulProposer() : NgramProposer({}) {}
  std::unique_ptr<Session> Open(const SessionIntroduction& /*introduction*/) override {
    return std::make_unique<Mirror>(*this);
  }
  std::vector<Wish> wishes;

 private:
  struct Mirror : Session {
    explicit Mirror(WishfulProposer& owner) : proposer(owner) {}
    void Append(std::span<const int32_t> token_ids) override { num_tokens += token_ids.size(); }
    void Want(const Wish& wish) override { proposer.wishes.push_back(wish); }
    uint64_t position() const override { return num_tokens; }
    WishfulProposer& proposer;
    uint64_t num_tokens = 0;
  };
};

TEST_F(SessionTableTest, TellsWhatIsWantedOnceTheTokensAreWhole) {
  WishfulProposer proposer;
  Stream stream({.proposer = proposer, .slots = slots_, .metrics = metrics_, .limits = limits_});
  stream.Open(1, {1, 2}, 4).set_awaiting_more(true);
  stream.Advance(1, 2, {3}, 5);
  v1::AdvanceSession& advance = stream.Advance(1, 3, {4}, 99);
  advance.set_next_step_us(1500);
  advance.set_step_us(80000);
  stream.Advance(1, 4, {5}, 0);
  stream.Apply();
  ASSERT_EQ(proposer.wishes.size(), 3);
  EXPECT_EQ(proposer.wishes[0].node_budget, 5);
  EXPECT_EQ(proposer.wishes[0].step, absl::ZeroDuration());
  EXPECT_EQ(proposer.wishes[1].node_budget, limits_.max_tree_nodes);
  EXPECT_EQ(proposer.wishes[1].until_next_step, absl::Microseconds(1500));
  EXPECT_EQ(proposer.wishes[1].step, absl::Milliseconds(80));
  EXPECT_EQ(proposer.wishes[2].node_budget, 0);
}

TEST_F(SessionTableTest, ATreeThatIsNoLongerWantedIsNotSent) {
  Stream stream(*this);
  stream.Open(1, {1, 1, 1}, 4);
  stream.Apply();
  stream.Advance(1, 3, {1}, 0);
  stream.Apply();
  EXPECT_FALSE(stream.table.TakeNews(stream.response));
  stream.table.Announce(1);
  EXPECT_FALSE(stream.table.HasNews());
  stream.Advance(1, 4, {}, 2);
  EXPECT_EQ(stream.Exchange().trees(0).token_ids_size(), 2);
}

TEST_F(SessionTableTest, PiecesOfAContextAreAnsweredOnceItIsWhole) {
  Stream stream(*this);
  stream.Open(1, {1, 2}, 4).set_awaiting_more(true);
  stream.Advance(1, 2, {3, 4}, 4).set_awaiting_more(true);
  stream.Apply();
  EXPECT_FALSE(stream.table.HasNews());
  stream.Advance(1, 4, {1}, 4);
  EXPECT_EQ(stream.Exchange().trees(0).position(), 5);
}

TEST_F(SessionTableTest, ASessionHearsWhereItsOpeningContextEnds) {
  SuffixProposer suffix({});
  Stream stream({.proposer = suffix, .slots = slots_, .metrics = metrics_, .limits = limits_});
  // An opening in pieces, asked for nothing, and then an output.
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
  EXPECT_THAT(stream.Exchange().unknown_session_ids(), ElementsAre(1)) << "it stays gone";
}

TEST_F(SessionTableTest, AnIdOpenedTwiceIsDropped) {
  Stream stream(*this);
  stream.Open(1, {1}, 4);
  stream.Open(1, {1}, 4);
  EXPECT_THAT(stream.Exchange().unknown_session_ids(), ElementsAre(1));
  EXPECT_EQ(stream.response.trees_size(), 0);
}

TEST_F(SessionTableTest, FullMeansRefusedUntilASessionCloses) {
  Stream stream(*this);
  Stream other(*this);
  for (uint64_t id = 0; id < 2; ++id) stream.Open(id, {1}, 0);
  stream.Apply();
  other.Open(0, {1}, 0);
  other.Open(1, {1}, 1);
  EXPECT_THAT(other.Exchange().refused_session_ids(), ElementsAre(1));
  EXPECT_EQ(other.response.trees_size(), 0);
  stream.Close(1);
  stream.Apply();
  other.Open(2, {1}, 1);
  EXPECT_THAT(other.Exchange().refused_session_ids(), IsEmpty());
  EXPECT_EQ(metrics_.sessions.Value(), 3);
}

TEST_F(SessionTableTest, AStreamsEndFreesItsSessions) {
  {
    Stream stream(*this);
    for (uint64_t id = 0; id < 3; ++id) stream.Open(id, {1}, 0);
    stream.Apply();
    EXPECT_EQ(metrics_.sessions.Value(), 3);
  }
  EXPECT_EQ(metrics_.sessions.Value(), 0);
  EXPECT_TRUE(slots_.TryTake());
}

TEST_F(SessionTableTest, AContextBeyondTheLimitIsRefused) {
  Stream stream(*this);
  stream.Open(1, std::vector<uint32_t>(101, 1), 4);
  stream.Open(2, std::vector<uint32_t>(100, 1), 4);
  EXPECT_THAT(stream.Exchange().refused_session_ids(), ElementsAre(1));
  stream.Advance(2, 100, {1}, 4);
  EXPECT_THAT(stream.Exchange().refused_session_ids(), ElementsAre(2));
  EXPECT_EQ(metrics_.sessions.Value(), 0);
}

TEST_F(SessionTableTest, TokensBeyondInt32AreRefused) {
  Stream stream(*this);
  stream.Open(1, {1, 0x80000000u}, 4);
  stream.Open(2, {1, 0x7FFFFFFFu}, 4);
  EXPECT_THAT(stream.Exchange().refused_session_ids(), ElementsAre(1));
  EXPECT_EQ(stream.response.trees(0).session_id(), 2);
}

TEST_F(SessionTableTest, BudgetsAreCutToTheLimit) {
  Stream stream(*this);
  stream.Open(1, std::vector<uint32_t>(50, 1), std::numeric_limits<uint32_t>::max());
  EXPECT_EQ(stream.Exchange().trees(0).token_ids_size(), limits_.max_tree_nodes);
}

TEST_F(SessionTableTest, AClosedSessionIsOwedNothing) {
  Stream stream(*this);
  stream.Open(1, {1, 1, 1}, 4);
  stream.Close(1);
  stream.Close(99);
  stream.Apply();
  EXPECT_FALSE(stream.table.HasNews());
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
  }
}

TEST(ProposerConfig, FieldsOutOfRangeAreNamed) {
  using ::testing::HasSubstr;
  EXPECT_TRUE(Validate(Config{}).ok());
  EXPECT_THAT(Validate(Config{.method = "magic"}).ToString(),
              HasSubstr("method: expected ngram, suffix or draft, got 'magic'"));
  EXPECT_THAT(Validate(Config{.limits = {.max_sessions = 0}}).ToString(), HasSubstr("max_sessions"));
  EXPECT_THAT(Validate(Config{.limits = {.max_context_tokens = -1}}).ToString(), HasSubstr("max_context_tokens"));
  EXPECT_THAT(Validate(Config{.limits = {.max_tree_nodes = 1025}}).ToString(), HasSubstr("max_tree_nodes"));
  EXPECT_THAT(Validate(Config{.ngram = {.min_length = 0}}).ToString(), HasSubstr("ngram_min_length"));
  EXPECT_TRUE(Validate(Config{.method = "suffix"}).ok());
  EXPECT_THAT(Validate(Config{.suffix = {.max_depth = 0}}).ToString(), HasSubstr("suffix_max_depth"));
}

}  // namespace
}  // namespace foretoken::proposer
