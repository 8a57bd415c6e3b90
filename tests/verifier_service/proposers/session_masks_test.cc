// SPDX-License-Identifier: Apache-2.0
// The masks of allowed tokens that the book sends. If this test fails, a proposer guesses under the mask of another
// position, or a message becomes too large for its reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "common/rpc/proposal_protocol.h"
#include "tests/verifier_service/proposers/session_book_fixture.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

const ReplicaLimits kReadsMasks = {.reads_allowed_tokens = true};
const std::vector<uint32_t> kThird = {0b100};
const std::string kThirdBytes = "\x04";
const std::vector<uint32_t> kNinth = {0x100, 0};
const std::string kNinthBytes = {'\x00', '\x01'};

class SessionMasks : public SessionBookTest {
 protected:
  void Advance(SequenceId id, const std::vector<int32_t>& committed, std::span<const uint32_t> allowed_tokens,
               int32_t node_budget = 8, uint32_t proposers = kEverybody) {
    book_.Advance(id, committed,
                  {.node_budget = node_budget, .proposers = proposers, .allowed_tokens = allowed_tokens});
  }
  // The mask of the only advance in the next message.
  std::string NextMask() {
    const v1::ProposeRequest request = Next(10);
    EXPECT_THAT(request.opens(), SizeIs(0));
    EXPECT_THAT(request.advances(), SizeIs(1));
    return request.advances_size() == 1 ? request.advances(0).allowed_tokens() : "no advance";
  }
};

TEST_F(SessionMasks, AMaskGoesOutWithTheRequestForATreeAtItsPosition) {
  book_.AddReplica(10, 0, kReadsMasks, kNow);
  Open(1, {5, 6});
  EXPECT_EQ(Next(10).opens(0).allowed_tokens(), "");
  Advance(1, {7}, kNinth);
  EXPECT_EQ(NextMask(), kNinthBytes);
}

TEST_F(SessionMasks, AMaskIsForgottenWhenItsPositionIsPast) {
  book_.AddReplica(10, 0, kReadsMasks, kNow);
  Open(1, {5, 6});
  Next(10);
  Advance(1, {7}, kThird);
  Advance(1, {8}, {});
  EXPECT_EQ(NextMask(), "") << "the message is about the position after 8";
  Advance(1, {9}, kThird);
  Advance(1, {10}, kNinth);
  EXPECT_EQ(NextMask(), kNinthBytes);
}

TEST_F(SessionMasks, AMaskStaysWhileNothingIsCommitted) {
  book_.AddReplica(10, 0, kReadsMasks, kNow);
  book_.Open({.sequence_id = 1, .token_ids = kTokens, .proposers = 1, .allowed_tokens = kThird}, kNow);
  EXPECT_EQ(Next(10).opens(0).allowed_tokens(), "") << "the opening asks for no tree";
  Advance(1, {}, {});
  EXPECT_EQ(NextMask(), kThirdBytes);
  Advance(1, {}, kNinth);
  EXPECT_EQ(NextMask(), kNinthBytes);
}

TEST_F(SessionMasks, OnlyAnEventThatAsksForATreeHasAMask) {
  book_.AddReplica(10, 0, kReadsMasks, kNow);
  Open(1, {5, 6});
  Next(10);
  Advance(1, {7}, kThird, /*node_budget=*/0);
  EXPECT_EQ(NextMask(), "");
  Advance(1, {8}, kThird, /*node_budget=*/8, /*proposers=*/0);
  EXPECT_FALSE(book_.NextRequest(10, kNow).has_value());
  Advance(1, {9}, kThird);
  book_.Close(1);
  EXPECT_EQ(NextMask(), "") << "the farewell asks for no tree";
}

TEST_F(SessionMasks, AMovedSequenceTakesItsMaskAlong) {
  book_.AddReplica(10, 0, kReadsMasks, kNow);
  Open(1, {5});
  Next(10);
  Advance(1, {}, kThird);
  book_.RemoveReplica(10, kNow);
  book_.AddReplica(11, 0, kReadsMasks, kNow);
  const v1::ProposeRequest moved = Next(11);
  ASSERT_THAT(moved.opens(), SizeIs(1));
  EXPECT_EQ(moved.opens(0).node_budget(), 8);
  EXPECT_EQ(moved.opens(0).allowed_tokens(), kThirdBytes);
}

TEST_F(SessionMasks, OfALongContextOnlyTheLastPieceHasTheMask) {
  book_.AddReplica(10, 0, kReadsMasks, kNow);
  Open(1, std::vector<int32_t>(40'000, 7));
  Advance(1, {8}, kThird);
  std::vector<std::string> masks;
  while (const std::optional<v1::ProposeRequest> request = book_.NextRequest(10, kNow)) {
    for (const v1::OpenSession& open : request->opens()) masks.push_back(open.allowed_tokens());
    for (const v1::AdvanceSession& advance : request->advances()) masks.push_back(advance.allowed_tokens());
  }
  EXPECT_THAT(masks, ElementsAre("", "", "", "", kThirdBytes));
}

TEST_F(SessionMasks, AProposerThatDoesNotReadMasksGetsNone) {
  book_.AddReplica(10, 0, {}, kNow);
  Open(1, {5});
  Next(10);
  Advance(1, {6}, kThird);
  EXPECT_EQ(NextMask(), "");
}

TEST_F(SessionMasks, AMaskThatIsTooLongIsNotSent) {
  book_.AddReplica(10, 0, kReadsMasks, kNow);
  Open(1, {5});
  Next(10);
  std::vector<uint32_t> mask(rpc::kMaxAllowedTokensBytes / 4, ~0u);
  Advance(1, {6}, mask);
  EXPECT_EQ(NextMask().size(), rpc::kMaxAllowedTokensBytes);
  mask.push_back(1);
  Advance(1, {7}, mask);
  EXPECT_EQ(NextMask(), "");
}

TEST_F(SessionMasks, ManyMasksAreSplitOverMessages) {
  constexpr SequenceId kNumSequences = 10'000;
  book_.AddReplica(10, 0, kReadsMasks, kNow);
  for (SequenceId id = 1; id <= kNumSequences; ++id) Open(id, {5});
  while (book_.NextRequest(10, kNow).has_value()) continue;
  const std::vector<uint32_t> mask(4096, ~0u);  // of 131,072 tokens
  for (SequenceId id = 1; id <= kNumSequences; ++id) Advance(id, {6}, mask);
  std::set<uint64_t> asked;
  while (const std::optional<v1::ProposeRequest> request = book_.NextRequest(10, kNow)) {
    ASSERT_LE(request->ByteSizeLong(), rpc::kMaxProposeRequestBytes);
    for (const v1::AdvanceSession& advance : request->advances()) {
      EXPECT_TRUE(asked.insert(advance.session_id()).second) << "twice: " << advance.session_id();
      EXPECT_EQ(advance.allowed_tokens().size(), 4 * mask.size());
      EXPECT_THAT(advance.token_ids(), ElementsAre(6));
    }
  }
  EXPECT_THAT(asked, SizeIs(kNumSequences));
}

TEST_F(SessionMasks, AMaskThatWaitsForRoomIsNotSentForALaterPosition) {
  book_.AddReplica(10, 0, kReadsMasks, kNow);
  constexpr SequenceId kNumSequences = 100;
  for (SequenceId id = 1; id <= kNumSequences; ++id) Open(id, {5});
  while (book_.NextRequest(10, kNow).has_value()) continue;
  const std::vector<uint32_t> mask(rpc::kMaxAllowedTokensBytes / 4, ~0u);
  for (SequenceId id = 1; id <= kNumSequences; ++id) Advance(id, {6}, mask);
  const int num_first = Next(10).advances_size();
  ASSERT_LT(num_first, kNumSequences);
  for (SequenceId id = 1; id <= kNumSequences; ++id) Advance(id, {7}, {});
  const v1::ProposeRequest request = Next(10);
  ASSERT_THAT(request.advances(), SizeIs(kNumSequences));
  int num_behind = 0;
  for (const v1::AdvanceSession& advance : request.advances()) {
    EXPECT_EQ(advance.allowed_tokens(), "");
    if (advance.token_ids_size() == 2) ++num_behind;
  }
  EXPECT_EQ(num_behind, kNumSequences - num_first);
}

}  // namespace
}  // namespace foretoken::verifier
