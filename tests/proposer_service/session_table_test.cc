// SPDX-License-Identifier: Apache-2.0
// The protocol of a stream without gRPC. If these tests fail, sessions lose their guesses, or a verifier's mistake
// harms more than its own session.
#include "proposer_service/session_table.h"

#include <functional>
#include <limits>
#include <random>
#include <set>

#include "common/rpc/proposal_protocol.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/ngram/ngram.h"
#include "proposer_service/suffix/suffix.h"

namespace foretoken::proposer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SessionTableTest : public ::testing::Test {
 protected:
  // A table with its own requests and answers.
  struct Stream {
    explicit Stream(SessionTableTest& test)
        : Stream({.proposer = test.proposer_, .room = test.room_, .metrics = test.metrics_}) {}
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
      EXPECT_TRUE(table.Apply(request).ok());
      request.Clear();
    }
    const v1::ProposeResponse& Exchange() {
      Apply();
      table.TakeResponse(response);
      return response;
    }

    v1::ProposeRequest request;
    v1::ProposeResponse response;
    SessionTable table;
  };

  telemetry::Metrics registry_;
  ProposerMetrics metrics_{registry_, {}};
  const SessionLimits limits_ = {.max_sessions = 3,
                                 .max_total_tokens = 250,
                                 .max_stream_share = 1,
                                 .max_context_tokens = 100,
                                 .max_tree_nodes = 10};
  SessionRoom room_{limits_, metrics_.room()};
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
  EXPECT_FALSE(stream.table.HasResponse());
}

// Records the rules of its sessions.
class RuleRecordingProposer : public NgramProposer {
 public:
  RuleRecordingProposer() : NgramProposer({}) {}
  std::unique_ptr<Session> Open(const SessionIntroduction& introduction) override {
    rules.push_back(introduction.rule);
    return NgramProposer::Open(introduction);
  }
  std::vector<kernels::VerificationRule> rules;
};

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
  v1::AdvanceSession& advance = stream.Advance(1, 3, {4}, 99);
  advance.set_next_step_us(1500);
  advance.set_step_us(80000);
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
  EXPECT_EQ(metrics_.tokens.Value(), 0);
  EXPECT_TRUE(room_.TryTakeSession());
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

TEST_F(SessionTableTest, ARefusalSaysWhy) {
  Stream stream(*this);
  for (uint64_t id = 0; id < 3; ++id) stream.Open(id, {1}, 0);
  stream.Apply();
  Stream other(*this);
  other.Open(7, {1}, 4);
  const v1::ProposeResponse& response = other.Exchange();
  ASSERT_EQ(response.refusals_size(), 1);
  EXPECT_EQ(response.refusals(0).session_id(), 7);
  EXPECT_EQ(response.refusals(0).reason(), v1::REFUSAL_REASON_FULL);
  EXPECT_EQ(response.refusals(0).detail(), "max_sessions: expected at most 3");
  EXPECT_THAT(response.refused_session_ids(), ElementsAre(7)) << "for verifiers that read this field only";
  EXPECT_EQ(metrics_.refused.at(v1::REFUSAL_REASON_FULL)->Value(), 1);
}

// The reasons of a response's refusals.
std::vector<v1::RefusalReason> Reasons(const v1::ProposeResponse& response) {
  std::vector<v1::RefusalReason> reasons;
  for (const v1::RefusedSession& refused : response.refusals()) reasons.push_back(refused.reason());
  return reasons;
}

TEST_F(SessionTableTest, TokensOfAllSessionsAreBoundedAlsoOfUnfinishedContexts) {
  Stream stream(*this);
  Stream other(*this);
  stream.Open(1, std::vector<uint32_t>(100, 1), 0).set_awaiting_more(true);
  stream.Open(2, std::vector<uint32_t>(50, 1), 0).set_awaiting_more(true);
  stream.Advance(2, 50, std::vector<uint32_t>(50, 1), 0).set_awaiting_more(true);
  EXPECT_THAT(Reasons(stream.Exchange()), IsEmpty());
  EXPECT_EQ(metrics_.tokens.Value(), 200);
  other.Open(1, std::vector<uint32_t>(50, 1), 0);
  EXPECT_THAT(Reasons(other.Exchange()), IsEmpty());
  other.Advance(1, 50, {1}, 0);
  EXPECT_THAT(Reasons(other.Exchange()), ElementsAre(v1::REFUSAL_REASON_FULL));
  EXPECT_EQ(other.response.refusals(0).detail(), "max_total_tokens: expected at most 250");
  EXPECT_EQ(metrics_.tokens.Value(), 200) << "the tokens of the refused session are returned";
  stream.Close(1);
  stream.Apply();
  other.Open(2, std::vector<uint32_t>(100, 1), 0);
  EXPECT_THAT(Reasons(other.Exchange()), IsEmpty());
}

TEST_F(SessionTableTest, AStreamHasItsShareOnly) {
  SessionRoom room({.max_sessions = 6, .max_total_tokens = 200, .max_stream_share = .5f}, metrics_.room());
  Stream stream({.proposer = proposer_, .room = room, .metrics = metrics_});
  Stream other({.proposer = proposer_, .room = room, .metrics = metrics_});
  for (uint64_t id = 1; id <= 4; ++id) stream.Open(id, std::vector<uint32_t>(25, 1), 0);
  EXPECT_THAT(Reasons(stream.Exchange()), ElementsAre(v1::REFUSAL_REASON_STREAM_FULL));
  EXPECT_EQ(stream.response.refusals(0).detail(), "sessions of a stream: expected at most 3");
  stream.Advance(3, 25, std::vector<uint32_t>(26, 1), 0);
  EXPECT_THAT(Reasons(stream.Exchange()), ElementsAre(v1::REFUSAL_REASON_STREAM_FULL));
  EXPECT_EQ(stream.response.refusals(0).detail(), "tokens of a stream: expected at most 100");
  for (uint64_t id = 1; id <= 3; ++id) other.Open(id, std::vector<uint32_t>(33, 1), 0);
  EXPECT_THAT(Reasons(other.Exchange()), IsEmpty()) << "the other stream has its own share";
  other.Open(4, std::vector<uint32_t>(101, 1), 0);
  other.Close(1);
  other.Apply();
  other.Open(5, std::vector<uint32_t>(101, 1), 0);
  other.Exchange();
  EXPECT_THAT(Reasons(other.response),
              ElementsAre(v1::REFUSAL_REASON_STREAM_FULL, v1::REFUSAL_REASON_CONTEXT_TOO_LONG));
}

struct BadOpen {
  std::string name;
  std::function<void(v1::OpenSession&)> spoil;
  std::string detail;
};

class BadOpens : public SessionTableTest, public ::testing::WithParamInterface<BadOpen> {};

// The table refuses the session before the proposer gets it.
TEST_P(BadOpens, AreRefusedByName) {
  RuleRecordingProposer proposer;
  Stream stream({.proposer = proposer, .room = room_, .metrics = metrics_});
  GetParam().spoil(stream.Open(1, {1, 1}, 4));
  EXPECT_THAT(Reasons(stream.Exchange()), ElementsAre(v1::REFUSAL_REASON_INVALID));
  EXPECT_EQ(stream.response.refusals(0).detail(), GetParam().detail);
  EXPECT_EQ(stream.response.trees_size(), 0);
  EXPECT_THAT(proposer.rules, IsEmpty());
  EXPECT_EQ(metrics_.sessions.Value(), 0);
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

INSTANTIATE_TEST_SUITE_P(
    Fields, BadOpens,
    ::testing::Values(BadOpen{"NanTemperature", [](auto& open) { open.mutable_filters()->set_temperature(kNan); },
                              "filters.temperature: expected a number, at least 0, got nan"},
                      BadOpen{"InfiniteTemperature",
                              [](auto& open) { open.mutable_filters()->set_temperature(kInfinity); },
                              "filters.temperature: expected a number, at least 0, got inf"},
                      BadOpen{"NegativeTemperature", [](auto& open) { open.mutable_filters()->set_temperature(-1); },
                              "filters.temperature: expected a number, at least 0, got -1"},
                      BadOpen{"HugeTopK", [](auto& open) { open.mutable_filters()->set_top_k(0x80000000u); },
                              "filters.top_k: expected below 2^31, got 2147483648"},
                      BadOpen{"NanTopP", [](auto& open) { open.mutable_filters()->set_top_p(kNan); },
                              "filters.top_p: expected above 0, at most 1, got nan"},
                      BadOpen{"NoTopP", [](auto& open) { open.mutable_filters()->set_top_p(0); },
                              "filters.top_p: expected above 0, at most 1, got 0"},
                      BadOpen{"NanMinP", [](auto& open) { open.mutable_filters()->set_min_p(kNan); },
                              "filters.min_p: expected 0 to 1, got nan"},
                      BadOpen{"MinPAboveOne", [](auto& open) { open.mutable_filters()->set_min_p(1.5f); },
                              "filters.min_p: expected 0 to 1, got 1.5"},
                      BadOpen{"LongTenant", [](auto& open) { open.set_tenant(std::string(257, 't')); },
                              "tenant: expected at most 256 bytes, got 257"}),
    [](const auto& info) { return info.param.name; });

// A proposer with few tokens, as a draft model has them.
class SmallProposer : public NgramProposer {
 public:
  SmallProposer() : NgramProposer({}) {}
  const ProposerDescription& Describe() const override { return description_; }

 private:
  const ProposerDescription description_ = {
      .method = "small", .vocabulary_fingerprint = "aa", .num_tokens = 50, .max_context_tokens = 1000};
};

TEST_F(SessionTableTest, TokensThatTheProposerDoesNotKnowAreRefused) {
  SmallProposer proposer;
  Stream stream({.proposer = proposer, .room = room_, .metrics = metrics_});
  stream.Open(1, {1, 50}, 4);
  stream.Open(2, {1, 49}, 4);
  EXPECT_THAT(Reasons(stream.Exchange()), ElementsAre(v1::REFUSAL_REASON_INVALID));
  EXPECT_EQ(stream.response.refusals(0).detail(), "token_ids[1]: expected below 50, got 50");
  EXPECT_EQ(stream.response.trees(0).session_id(), 2);
}

TEST_F(SessionTableTest, AStreamOfAnotherVocabularyEnds) {
  SmallProposer proposer;
  Stream stream({.proposer = proposer, .room = room_, .metrics = metrics_});
  stream.Open(1, {1}, 4);
  stream.request.set_vocabulary_fingerprint("bb");
  const absl::Status status = stream.table.Apply(stream.request);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(status.message(), "vocabulary_fingerprint: expected aa, got bb");
  EXPECT_FALSE(stream.table.HasResponse()) << "nothing of the message was applied";
  stream.request.set_vocabulary_fingerprint(std::string(129, 'a'));
  EXPECT_TRUE(absl::IsInvalidArgument(stream.table.Apply(stream.request)));
  stream.request.set_vocabulary_fingerprint("aa");
  EXPECT_TRUE(stream.table.Apply(stream.request).ok());
}

// One message of a verifier can open a hundred thousand sessions that the table refuses.
TEST_F(SessionTableTest, RefusalsAreSentInMessagesBelowTheBound) {
  Stream stream(*this);
  constexpr uint64_t kNumOpens = 100'000;
  for (uint64_t id = 1; id <= kNumOpens; ++id) stream.Open(id, {1}, 0).set_tenant(std::string(257, 't'));
  stream.Apply();
  std::set<uint64_t> refused;
  while (stream.table.HasResponse()) {
    ASSERT_TRUE(stream.table.TakeResponse(stream.response));
    ASSERT_LE(stream.response.ByteSizeLong(), rpc::kMaxProposeResponseBytes);
    ASSERT_EQ(stream.response.refused_session_ids_size(), stream.response.refusals_size());
    for (const v1::RefusedSession& refusal : stream.response.refusals()) refused.insert(refusal.session_id());
  }
  EXPECT_EQ(refused.size(), kNumOpens);
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

TEST(ProposerConfig, FieldsOutOfRangeAreNamed) {
  using ::testing::HasSubstr;
  EXPECT_TRUE(Validate(Config{}).ok());
  EXPECT_THAT(Validate(Config{.method = "magic"}).ToString(),
              HasSubstr("method: expected ngram, suffix or draft, got 'magic'"));
  EXPECT_THAT(Validate(Config{.limits = {.max_sessions = 0}}).ToString(), HasSubstr("max_sessions"));
  EXPECT_THAT(Validate(Config{.limits = {.max_context_tokens = -1}}).ToString(), HasSubstr("max_context_tokens"));
  EXPECT_THAT(Validate(Config{.limits = {.max_total_tokens = 0}}).ToString(), HasSubstr("max_total_tokens"));
  EXPECT_THAT(Validate(Config{.limits = {.max_streams = 0}}).ToString(), HasSubstr("max_streams"));
  for (const float share : {0.f, -1.f, 1.5f, kNan}) {
    EXPECT_THAT(Validate(Config{.limits = {.max_stream_share = share}}).ToString(), HasSubstr("max_stream_share"));
  }
  EXPECT_THAT(Validate(Config{.limits = {.max_tree_nodes = 1025}}).ToString(), HasSubstr("max_tree_nodes"));
  EXPECT_THAT(Validate(Config{.ngram = {.min_length = 0}}).ToString(), HasSubstr("ngram_min_length"));
  EXPECT_TRUE(Validate(Config{.method = "suffix"}).ok());
  EXPECT_THAT(Validate(Config{.suffix = {.max_depth = 0}}).ToString(), HasSubstr("suffix_max_depth"));
}

}  // namespace
}  // namespace foretoken::proposer
