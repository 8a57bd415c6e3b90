// SPDX-License-Identifier: Apache-2.0
// The features that wait for one replica. If this test fails, a slow drafter costs memory, or drafters miss features.
#include "verifier_service/proposers/feature_lane.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "common/rpc/proposal_protocol.h"

namespace foretoken::verifier {
namespace {

using Need = FeatureLane::Need;

FeatureSource SourceOf(int64_t width) {
  return std::make_shared<const speculation::TargetFeatures>(
      speculation::TargetFeatures{.layers = {1}, .target_hidden_size = width});
}

class FeatureLaneTest : public ::testing::Test {
 protected:
  static constexpr int64_t kWidth = 1024;
  static constexpr uint64_t kBytes = 2 * kWidth;  // of a position

  // Gives the session features whose first value is the position.
  void Give(uint64_t session_id, uint64_t begin, uint64_t num_positions) {
    std::vector<uint16_t> values(num_positions * kWidth);
    for (uint64_t i = 0; i < num_positions; ++i) values[i * kWidth] = static_cast<uint16_t>(begin + i);
    lane_.Give(session_id, begin, std::move(values));
  }
  v1::ProposeRequest Write(uint64_t num_told = 1'000'000) {
    v1::ProposeRequest request;
    lane_.Write([num_told](uint64_t) { return num_told; }, request);
    return request;
  }
  // Writes messages until nothing is left, and returns the positions by session.
  std::map<uint64_t, std::vector<uint64_t>> WriteAll() {
    std::map<uint64_t, std::vector<uint64_t>> positions;
    for (v1::ProposeRequest request = Write(); request.features_size() > 0; request = Write()) {
      EXPECT_LE(request.ByteSizeLong(), (128 << 10) + 1024);  // so tokens do not wait long behind it
      for (const v1::FeatureChunk& chunk : request.features()) {
        EXPECT_LE(chunk.values().size(), rpc::kMaxFeatureChunkBytes);
        EXPECT_EQ(chunk.dtype(), "BF16");
        for (size_t i = 0; i < chunk.values().size() / kBytes; ++i) {
          uint16_t first;
          std::memcpy(&first, chunk.values().data() + i * kBytes, sizeof(first));
          EXPECT_EQ(first, chunk.first_position() + i);
          positions[chunk.session_id()].push_back(chunk.first_position() + i);
        }
      }
    }
    return positions;
  }

  FeatureLane lane_{SourceOf(kWidth)};
};

std::vector<uint64_t> Positions(uint64_t begin, uint64_t end) {
  std::vector<uint64_t> positions;
  for (uint64_t p = begin; p < end; ++p) positions.push_back(p);
  return positions;
}

TEST_F(FeatureLaneTest, SendsNothingWithoutCredit) {
  EXPECT_TRUE(lane_.NeedOf(1, 10).has_value());
  EXPECT_TRUE(lane_.Affordable({{1, 0, 10}}).empty());
  Give(1, 0, 1);
  EXPECT_EQ(Write().features_size(), 0);
  lane_.AddCredit(3 * kBytes + 5);
  const std::vector<Need> needs = lane_.Affordable({{1, 0, 10}, {2, 4, 6}});
  ASSERT_EQ(needs.size(), 2);  // the shorter first
  EXPECT_EQ(needs[0].session_id, 2);
  EXPECT_EQ(needs[0].end, 6);
  EXPECT_EQ(needs[1].end, 1);
}

TEST_F(FeatureLaneTest, SendsEveryPositionOnceAndInOrder) {
  lane_.AddCredit(64 << 20);
  Give(1, 0, 300);
  Give(2, 7, 5);
  Give(1, 300, 200);
  EXPECT_EQ(lane_.NeedOf(2, 12), std::nullopt);
  EXPECT_EQ(lane_.NeedOf(2, 13)->begin, 12);
  const auto positions = WriteAll();
  EXPECT_EQ(positions.at(1), Positions(0, 500));
  EXPECT_EQ(positions.at(2), Positions(7, 12));
  EXPECT_TRUE(WriteAll().empty());
}

TEST_F(FeatureLaneTest, AShortSessionDoesNotWaitForALongOne) {
  lane_.AddCredit(64 << 20);
  Give(1, 0, 500);
  Give(2, 7, 5);
  const v1::ProposeRequest request = Write();
  EXPECT_EQ(request.features(0).session_id(), 1);
  EXPECT_EQ(request.features(1).session_id(), 2);
}

TEST_F(FeatureLaneTest, HoldsPositionsBackUntilTheirTokensAreTold) {
  lane_.AddCredit(1 << 20);
  Give(1, 10, 5);
  EXPECT_EQ(Write(/*num_told=*/0).features_size(), 0);
  EXPECT_EQ(Write(/*num_told=*/10).features_size(), 0);
  EXPECT_EQ(Write(/*num_told=*/12).features(0).values().size(), 2 * kBytes);
  EXPECT_EQ(Write(/*num_told=*/12).features_size(), 0);
  EXPECT_EQ(WriteAll().at(1), Positions(12, 15));
}

TEST_F(FeatureLaneTest, ASessionThatEndsGivesItsCreditBack) {
  lane_.AddCredit(4 * kBytes);
  Give(1, 0, 4);
  EXPECT_TRUE(lane_.Affordable({{2, 0, 1}}).empty());
  lane_.Forget(1);
  lane_.Forget(9);
  EXPECT_EQ(Write().features_size(), 0);
  ASSERT_EQ(lane_.Affordable({{2, 0, 9}}).size(), 1);
  EXPECT_EQ(lane_.Affordable({{2, 0, 9}})[0].end, 4);
}

TEST_F(FeatureLaneTest, CountsNoMoreCreditThanTheBound) {
  for (int i = 0; i < 3; ++i) lane_.AddCredit(~uint64_t{0});
  std::vector<Need> needs;
  for (uint64_t id = 0; id < 200; ++id) needs.push_back({id, 0, 512});
  uint64_t num_positions = 0;
  for (const Need& need : lane_.Affordable(needs)) num_positions += need.end - need.begin;
  EXPECT_EQ(num_positions, rpc::kMaxFeatureCredit / kBytes);
}

// Credit that has become waiting features counts until they are sent, and after a session that ends.
TEST_F(FeatureLaneTest, AllSessionsWaitingFeaturesAreBounded) {
  constexpr uint64_t kPositions = (8 << 20) / kBytes;
  const auto give_to = [&](uint64_t first_id) {
    for (uint64_t id = first_id; id < first_id + 20; ++id) {
      lane_.AddCredit(~uint64_t{0});
      Give(id, 0, kPositions);
    }
  };
  const auto num_written = [&] {
    uint64_t num_positions = 0;
    for (const auto& [id, positions] : WriteAll()) num_positions += positions.size();
    return num_positions;
  };
  give_to(0);
  for (uint64_t id = 0; id < 4; ++id) lane_.Forget(id);
  give_to(100);
  EXPECT_EQ(num_written(), 8 * kPositions);
  give_to(200);
  EXPECT_EQ(num_written(), 8 * kPositions) << "what is sent makes room";
}

TEST_F(FeatureLaneTest, ASessionsWaitingFeaturesAreBounded) {
  lane_.AddCredit(64 << 20);
  EXPECT_EQ(lane_.NeedOf(1, 100'000)->end, (8 << 20) / kBytes);
  Give(1, 0, 4096);
  EXPECT_EQ(lane_.NeedOf(1, 100'000), std::nullopt);
  Write(/*num_told=*/12);
  EXPECT_EQ(lane_.NeedOf(1, 100'000)->begin, 4096);
  EXPECT_EQ(lane_.NeedOf(1, 100'000)->end, 4108);
}

TEST_F(FeatureLaneTest, FeaturesThatWereSentTakeNoMemory) {
  constexpr uint64_t kPositions = (8 << 20) / kBytes;
  for (uint64_t id = 0; id < 8; ++id) {
    lane_.AddCredit(64 << 20);
    Give(id, 0, kPositions);
    Write(/*num_told=*/kPositions);
    EXPECT_GE(lane_.num_bytes(), kPositions * kBytes / 2);
    EXPECT_LE(lane_.num_bytes(), kPositions * kBytes * 2) << "one session has waiting features";
    WriteAll();
    EXPECT_EQ(lane_.num_bytes(), 0);
  }
}

// The lane gets features once per step. A step of a prompt computes many hundred positions.
TEST(WideFeatureLane, AStepsFeaturesOfAPromptFit) {
  const FeatureLane lane(SourceOf(4096));
  EXPECT_GE(lane.NeedOf(1, 8000)->end, 1024);
}

TEST(WideFeatureLane, SendsOnePositionAtATime) {
  FeatureLane lane(SourceOf(rpc::kMaxFeatureWidth));
  lane.AddCredit(1 << 20);
  ASSERT_EQ(lane.NeedOf(1, 100)->end, 64);
  lane.Give(1, 0, std::vector<uint16_t>(3 * rpc::kMaxFeatureWidth));
  for (uint64_t position = 0; position < 3; ++position) {
    v1::ProposeRequest request;
    lane.Write([](uint64_t) { return 10; }, request);
    ASSERT_EQ(request.features_size(), 1);
    EXPECT_EQ(request.features(0).first_position(), position);
  }
}

}  // namespace
}  // namespace foretoken::verifier
