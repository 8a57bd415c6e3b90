// SPDX-License-Identifier: Apache-2.0
// Masks of allowed tokens in a verifier's events. If these tests fail, a proposer guesses under the mask of another
// position, or a verifier with large masks takes more memory than the limits allow.
#include <string>
#include <vector>

#include "common/rpc/parse_message.h"
#include "common/rpc/proposal_protocol.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/event_checks.h"
#include "tests/proposer_service/session_table_fixture.h"
#include "tests/testing/cases/allow_ids.h"

namespace foretoken::proposer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::MaskBytes;

const std::vector<uint32_t> kSessionText = {1, 2, 4, 7, 1, 2, 3, 8, 1, 2};

TEST_F(SessionTableTest, AMaskRestrictsTheTreeOfItsOwnRequestOnly) {
  Stream stream(*this);
  stream.Open(1, kSessionText, 1).set_allowed_tokens(MaskBytes({4}, 2));
  EXPECT_THAT(stream.Exchange().trees(0).token_ids(), ElementsAre(4));
  stream.Advance(1, 10, {}, 1);
  EXPECT_THAT(stream.Exchange().trees(0).token_ids(), ElementsAre(3));
  stream.Advance(1, 10, {}, 1).set_allowed_tokens(MaskBytes({4}, 2));
  EXPECT_THAT(stream.Exchange().trees(0).token_ids(), ElementsAre(4));
  stream.Advance(1, 10, {3}, 1);
  EXPECT_THAT(stream.Exchange().trees(0).token_ids(), ElementsAre(8));
}

TEST_F(SessionTableTest, AMaskThatLeavesNothingIsAnsweredWithAnEmptyTree) {
  Stream stream(*this);
  stream.Open(1, kSessionText, 8).set_allowed_tokens(MaskBytes({}, 1));
  ASSERT_EQ(stream.Exchange().trees_size(), 1);
  EXPECT_THAT(stream.response.trees(0).token_ids(), IsEmpty());
  EXPECT_EQ(stream.response.trees(0).position(), 10);
}

TEST_F(SessionTableTest, MasksCountAsTokensUntilTheNextRequest) {
  Stream stream(*this);
  stream.Open(1, kSessionText, 1).set_allowed_tokens(MaskBytes({4}, 33));
  stream.Apply();
  EXPECT_EQ(metrics_.tokens.Value(), 10 + 2);
  stream.Advance(1, 10, {}, 1).set_allowed_tokens(MaskBytes({4}, 32));
  stream.Apply();
  EXPECT_EQ(metrics_.tokens.Value(), 10 + 1);
  stream.Advance(1, 10, {}, 1);
  stream.Apply();
  EXPECT_EQ(metrics_.tokens.Value(), 10);
  stream.Advance(1, 10, {}, 1).set_allowed_tokens(MaskBytes({4}, 64));
  stream.Close(1);
  stream.Apply();
  EXPECT_EQ(metrics_.tokens.Value(), 0);
}

TEST_F(SessionTableTest, AMaskWithoutRoomIsLeftOut) {
  Stream stream(*this);
  stream.Open(1, kSessionText, 1).set_allowed_tokens(MaskBytes({4}, 32 * 241));
  EXPECT_THAT(stream.Exchange().trees(0).token_ids(), ElementsAre(3));
  EXPECT_EQ(stream.response.refusals_size(), 0);
  EXPECT_EQ(metrics_.tokens.Value(), 10);
  stream.Advance(1, 10, {}, 1).set_allowed_tokens(MaskBytes({4}, 32 * 240));
  EXPECT_THAT(stream.Exchange().trees(0).token_ids(), ElementsAre(4));
}

TEST_F(SessionTableTest, MasksInEveryEventOfManySessionsStayWithinTheLimits) {
  constexpr uint64_t kNumSessions = 10'000;
  const SessionLimits limits = {.max_sessions = 10'000, .max_total_tokens = 1 << 16, .max_stream_share = 1};
  SessionRoom room(limits, metrics_.room());
  Stream stream({.proposer = proposer_, .room = room, .metrics = metrics_});
  const std::string mask(rpc::kMaxAllowedTokensBytes, '\xFF');
  for (uint64_t id = 0; id < kNumSessions; ++id) {
    stream.Open(id, {1}, 0);
    if (id % 1000 == 999) stream.Apply();
  }
  EXPECT_FALSE(stream.table.HasResponse()) << "all sessions are open";
  for (int round = 0; round < 2; ++round) {
    int num_answers = 0;
    for (uint64_t id = 0; id < kNumSessions; ++id) {
      stream.Advance(id, 1 + round, {1}, 1).set_allowed_tokens(mask);
      if (id % 50 != 49) continue;
      const v1::ProposeResponse& response = stream.Exchange();
      num_answers += response.trees_size() + response.refusals_size() + response.unknown_session_ids_size();
      ASSERT_LE(metrics_.tokens.Value(), limits.max_total_tokens);
    }
    EXPECT_EQ(num_answers, kNumSessions);
  }
  for (uint64_t id = 0; id < kNumSessions; ++id) stream.Close(id);
  stream.Apply();
  EXPECT_EQ(metrics_.tokens.Value(), 0);
}

TEST(RequestBounds, TakeMasksOf64KiBAndNoLongerOnes) {
  for (const bool is_open : {true, false}) {
    for (const size_t num_extra : {0, 1}) {
      v1::ProposeRequest request, parsed;
      std::string mask(rpc::kMaxAllowedTokensBytes + num_extra, 'x');
      if (is_open) {
        request.add_opens()->set_allowed_tokens(mask);
      } else {
        request.add_advances()->set_allowed_tokens(mask);
      }
      const absl::Status status = rpc::ParseMessage(request.SerializeAsString(), RequestBounds(), parsed);
      EXPECT_EQ(status.ok(), num_extra == 0) << status;
      EXPECT_EQ(status.message().find("allowed_tokens") != absl::string_view::npos, num_extra > 0) << status;
    }
  }
}

}  // namespace
}  // namespace foretoken::proposer
