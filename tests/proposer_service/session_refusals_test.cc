// SPDX-License-Identifier: Apache-2.0
// The sessions and streams that a proposer refuses, and why. If these tests fail, a proposer takes more than it has
// room for, one verifier takes the room of others, or a refusal does not say why.
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/rpc/proposal_protocol.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/proposer_service/large_pieces.h"
#include "tests/proposer_service/session_table_fixture.h"

namespace foretoken::proposer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

// One message of a verifier can open thousands of sessions that the table refuses.
TEST_F(SessionTableTest, RefusalsAreSentInMessagesBelowTheBound) {
  Stream stream(*this);
  constexpr uint64_t kNumOpens = 16'384;
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

TEST_F(SessionTableTest, AMessageWithMoreRefusalsEndsTheStream) {
  Stream stream(*this);
  for (uint64_t id = 1; id <= 16'385; ++id) stream.Open(id, {1}, 0).set_tenant(std::string(257, 't'));
  const absl::Status status = stream.table.Apply(stream.request);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "refusals and unknown sessions that the verifier has not read: expected at most 16384, got 16385");
}

TEST_F(SessionTableTest, AFloodOfNoticesLeavesNoMemoryBehind) {
  if (!CountLargePieces()) GTEST_SKIP() << kNoLargePieces;
  Stream stream(*this);
  const size_t before = LargePieceBytes();
  {
    v1::ProposeRequest flood;
    for (uint64_t id = 1; id <= 8'000; ++id) {
      flood.add_advances()->set_session_id(id);
      v1::OpenSession& open = *flood.add_opens();
      open.set_session_id(id);
      open.set_tenant(std::string(257, 't'));
    }
    ASSERT_TRUE(stream.table.Apply(flood).ok());
  }
  EXPECT_GT(LargePieceBytes(), before + (1 << 18)) << "the notices wait";
  {
    v1::ProposeResponse response;
    while (stream.table.HasResponse()) stream.table.TakeResponse(response);
  }
  EXPECT_LT(LargePieceBytes(), before + (1 << 16));
}

// Each distinct id takes memory at the root of a suffix tree, in a table that must not grow for long at once.
TEST_F(SessionTableTest, TokensThatNoVocabularyHasAreRefused) {
  Stream stream(*this);
  stream.Open(1, {1, 0x80000000u}, 4);
  stream.Open(2, {1, 1'048'576}, 4);
  stream.Open(3, {1, 1'048'575}, 4);
  EXPECT_THAT(stream.Exchange().refused_session_ids(), ElementsAre(1, 2));
  EXPECT_EQ(stream.response.refusals(1).detail(), "token_ids[1]: expected below 1048576, got 1048576");
  EXPECT_EQ(stream.response.trees(0).session_id(), 3);
}

}  // namespace
}  // namespace foretoken::proposer
