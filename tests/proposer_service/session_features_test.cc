// SPDX-License-Identifier: Apache-2.0
// Features of the target in a stream: their credits, their order, and the verifier's mistakes. If this test fails, a
// verifier fills a proposer's memory, or a drafter reads features of other positions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proposer_service/session_table.h"
#include "tests/proposer_service/large_pieces.h"
#include "tests/proposer_service/session_table_fixture.h"
#include "tests/testing/fakes/feature_recorder.h"

namespace foretoken::proposer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int64_t kWidth = 8;
constexpr size_t kBytes = 2 * kWidth;  // of a position

class SessionFeaturesTest : public SessionTableTest {
 protected:
  SessionFeaturesTest() { stream_.table.TakeResponse(stream_.response); }

  v1::FeatureChunk& Chunk(uint64_t session_id, uint64_t first_position, uint64_t num_positions) {
    std::vector<uint16_t> values(num_positions * kWidth);
    for (uint64_t i = 0; i < num_positions; ++i) values[i * kWidth] = static_cast<uint16_t>(100 + first_position + i);
    v1::FeatureChunk& chunk = *stream_.request.add_features();
    chunk.set_session_id(session_id);
    chunk.set_first_position(first_position);
    chunk.set_dtype("BF16");
    chunk.set_values(values.data(), values.size() * sizeof(uint16_t));
    return chunk;
  }
  void Open(uint64_t session_id) { stream_.Open(session_id, {1, 2, 3, 4}, 2).set_seed(session_id); }

  const SessionLimits feature_limits_ = {.max_sessions = 3,
                                         .max_total_tokens = 250,
                                         .max_stream_share = 1,
                                         .max_context_tokens = 100,
                                         .max_stream_feature_bytes = 40 * kBytes,
                                         .max_tree_nodes = 10};
  SessionRoom feature_room_{feature_limits_, metrics_.room()};
  testing::FeatureRecorder drafter_{{.layers = {3}, .target_hidden_size = kWidth}};
  Stream stream_{{.proposer = drafter_, .room = feature_room_, .metrics = metrics_}};
};

TEST_F(SessionFeaturesTest, ReachTheirSessionWithTheTokensOfTheMessage) {
  EXPECT_EQ(stream_.response.feature_credit_bytes(), 40 * kBytes);
  Open(7);
  Chunk(7, 0, 2);
  Chunk(7, 2, 1);
  stream_.Advance(7, 4, {5, 6}, 2);
  Chunk(7, 3, 2);
  EXPECT_EQ(stream_.Exchange().trees(0).position(), 6);
  EXPECT_THAT(drafter_.Features(7), ElementsAre(Pair(0, 100), Pair(1, 101), Pair(2, 102), Pair(3, 103), Pair(4, 104)));
}

TEST_F(SessionFeaturesTest, MayBeginAtAnyPosition) {
  Open(7);
  Chunk(7, 2, 2);
  stream_.Exchange();
  EXPECT_THAT(drafter_.Features(7), ElementsAre(Pair(2, 102), Pair(3, 103)));
}

TEST_F(SessionFeaturesTest, AGapMakesTheSessionUnknown) {
  for (const uint64_t second : {0, 1, 3}) {
    Open(10 + second);
    Chunk(10 + second, 0, 2);
    Chunk(10 + second, second, 1);
    EXPECT_THAT(stream_.Exchange().unknown_session_ids(), ElementsAre(10 + second));
    EXPECT_THAT(stream_.response.trees(), IsEmpty());
  }
}

struct Fault {
  const char* detail;
  void (*make)(v1::FeatureChunk& chunk);
};

class FaultyChunks : public SessionFeaturesTest, public ::testing::WithParamInterface<Fault> {};

TEST_P(FaultyChunks, CostTheirSession) {
  Open(7);
  Open(8);
  GetParam().make(Chunk(7, 0, 2));
  Chunk(8, 0, 2);
  const v1::ProposeResponse& response = stream_.Exchange();
  ASSERT_EQ(response.refusals_size(), 1);
  EXPECT_EQ(response.refusals(0).session_id(), 7);
  EXPECT_EQ(response.refusals(0).reason(), v1::REFUSAL_REASON_INVALID);
  EXPECT_THAT(response.refusals(0).detail(), HasSubstr(GetParam().detail));
  EXPECT_EQ(response.trees(0).session_id(), 8);
  EXPECT_EQ(drafter_.Features(8).size(), 2);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultyChunks,
    ::testing::Values(Fault{"features.dtype: expected BF16, got \"F32\"", [](auto& c) { c.set_dtype("F32"); }},
                      Fault{"features.dtype: expected BF16", [](auto& c) { c.set_dtype("\xff\n"); }},
                      Fault{"whole positions of 16 bytes, got 17", [](auto& c) { c.set_values(std::string(17, 'a')); }},
                      Fault{"whole positions of 16 bytes, got 0", [](auto& c) { c.clear_values(); }},
                      Fault{"positions below 4, got 2 from 3", [](auto& c) { c.set_first_position(3); }},
                      Fault{"positions below 4", [](auto& c) { c.set_first_position(~uint64_t{0}); }}));

TEST_F(SessionFeaturesTest, BeyondTheCreditEndTheStream) {
  Open(7);
  stream_.request.mutable_opens(0)->mutable_token_ids()->Resize(60, 1);
  Chunk(7, 0, 40);
  EXPECT_TRUE(stream_.table.Apply(stream_.request).ok());
  stream_.request.Clear();
  Chunk(7, 40, 1);
  const absl::Status status = stream_.table.Apply(stream_.request);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("expected at most 0 bytes by the stream's credit, got 16"));
}

TEST_F(SessionFeaturesTest, CreditComesBackWhenFeaturesAreUsed) {
  drafter_.set_uses_features(false);
  Open(7);
  stream_.request.mutable_opens(0)->mutable_token_ids()->Resize(60, 1);
  Chunk(7, 0, 25);
  EXPECT_EQ(stream_.Exchange().feature_credit_bytes(), 0);
  drafter_.set_uses_features(true);
  EXPECT_TRUE(stream_.table.HasResponse());
  stream_.table.TakeResponse(stream_.response);
  EXPECT_EQ(stream_.response.feature_credit_bytes(), 25 * kBytes);
  EXPECT_FALSE(stream_.table.HasResponse());
  Chunk(7, 25, 9);  // too few for a message of their own
  EXPECT_EQ(stream_.Exchange().feature_credit_bytes(), 0);
}

TEST_F(SessionFeaturesTest, CreditComesBackWhenTheSessionEnds) {
  drafter_.set_uses_features(false);
  Open(7);
  stream_.request.mutable_opens(0)->mutable_token_ids()->Resize(60, 1);
  Chunk(7, 0, 30);
  Chunk(9, 0, 10);  // of a session that does not exist
  stream_.Close(7);
  EXPECT_EQ(stream_.Exchange().feature_credit_bytes(), 40 * kBytes);
}

// A drafter's questions wait until the features of their message are in.
TEST_F(SessionFeaturesTest, AFloodOfQuestionsLeavesNoMemoryBehind) {
  if (!CountLargePieces()) GTEST_SKIP() << kNoLargePieces;
  Open(7);
  stream_.Exchange();
  const size_t before = LargePieceBytes();
  {
    v1::ProposeRequest flood;
    for (int i = 0; i < 100'000; ++i) {
      v1::AdvanceSession& advance = *flood.add_advances();
      advance.set_session_id(7);
      advance.set_base_position(4);
      advance.set_node_budget(2);
    }
    ASSERT_TRUE(stream_.table.Apply(flood).ok());
  }
  EXPECT_EQ(stream_.Exchange().trees_size(), 1);
  EXPECT_LT(LargePieceBytes(), before + (1 << 18));
}

TEST_F(SessionFeaturesTest, AForgottenSessionIsUnknown) {
  Open(7);
  drafter_.set_readiness(Readiness::kForgotten);
  EXPECT_THAT(stream_.Exchange().unknown_session_ids(), ElementsAre(7));
}

TEST_F(SessionTableTest, AProposerThatReadsNoFeaturesGrantsNoCreditAndIgnoresThem) {
  Stream stream(*this);
  EXPECT_FALSE(stream.table.HasResponse());
  stream.Open(7, {1, 2, 3, 1}, 2);
  stream.request.add_features()->set_session_id(7);  // empty
  EXPECT_EQ(stream.Exchange().trees_size(), 1);
  stream.request.add_features()->set_values("ab");
  stream.Advance(7, 4, {1}, 2);
  EXPECT_EQ(stream.Exchange().trees_size(), 1);
}

}  // namespace
}  // namespace foretoken::proposer
