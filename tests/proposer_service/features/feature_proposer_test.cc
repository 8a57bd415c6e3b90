// SPDX-License-Identifier: Apache-2.0
// A drafter that reads hidden states, behind the interface of proposers, step by step. If these tests fail, verifiers
// send features to a proposer that does not use them, or wait for trees that never come.
#include "absl/synchronization/notification.h"
#include "common/base/steady_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/features/load_drafter.h"
#include "tests/testing/models/tiny_drafters.h"

namespace foretoken::proposer {
namespace {

using speculation::TokenTree;
using testing::kTinyHidden;

class FeatureProposerTest : public ::testing::Test {
 protected:
  FeatureProposerTest() {
    testing::MakeTinyEagle3({}).Write(dir_);
    proposer_ = MakeProposer([this] { return now_; });
  }
  std::unique_ptr<DraftProposer> MakeProposer(Clock now) {
    Drafter drafter = LoadDrafter("eagle3", {.model_directory = dir_.path(),
                                             .target_directory = target_.directory(),
                                             .num_threads = 2,
                                             .kv_cache_mb = 1})
                          .value();
    return std::make_unique<DraftProposer>(
        std::move(drafter), DraftForestOptions{.num_children = 6, .max_children = 6, .max_grown_nodes = 60}, registry_,
        std::move(now));
  }
  std::unique_ptr<Session> Open() {
    return proposer_->Open({.seed = 5, .temperature = 0, .announce = [this] { ++num_announced_; }});
  }
  static std::vector<uint16_t> Features(size_t count) {
    std::vector<uint16_t> values;
    for (const auto& feature : testing::RandomFeatures(count, kTinyHidden, 3)) {
      values.insert(values.end(), feature.begin(), feature.end());
    }
    return values;
  }
  static std::vector<int32_t> Tokens(size_t count) {
    std::vector<int32_t> token_ids;
    for (size_t i = 0; i < count; ++i) token_ids.push_back(static_cast<int32_t>((37 * i + 11) % 1000));
    return token_ids;
  }
  TokenTree Propose(Session& session) {
    const ProposalRequest request = {.session = &session, .node_budget = 16};
    return proposer_->Propose({&request, 1}).front();
  }
  void GrowAll() {
    while (proposer_->Step()) continue;
    proposer_->forest().CheckIntegrity();
  }

  testing::TinyTarget target_;
  testing::TempDir dir_;
  telemetry::Metrics registry_;
  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<DraftProposer> proposer_;
  int num_announced_ = 0;
};

TEST_F(FeatureProposerTest, SaysWhatItReads) {
  const ProposerDescription& description = proposer_->Describe();
  EXPECT_EQ(description.method, "eagle3");
  EXPECT_FALSE(description.vocabulary_fingerprint.empty());
  EXPECT_EQ(description.token_digests.size(), 1206);
  ASSERT_NE(description.features, nullptr);
  EXPECT_EQ(description.features->width(), kTinyHidden);
  EXPECT_EQ(description.features->target_hidden_size, kTinyHidden);
}

TEST_F(FeatureProposerTest, AnswersWhenTheFeaturesOfAllTokensHaveCome) {
  const auto session = Open();
  session->Append(Tokens(9));
  session->AppendFeatures(0, Features(5));
  EXPECT_EQ(session->num_unused_feature_values(), 5 * kTinyHidden);
  session->Want({.node_budget = 16});
  GrowAll();
  EXPECT_EQ(session->readiness(), Readiness::kNotYet);
  EXPECT_EQ(session->num_unused_feature_values(), 0);
  EXPECT_EQ(num_announced_, 1) << "there is room for more features";
  session->AppendFeatures(5, Features(3));
  session->Want({.node_budget = 16});
  GrowAll();
  EXPECT_EQ(session->readiness(), Readiness::kReady);
  EXPECT_EQ(Propose(*session).position, 9);
  EXPECT_GT(Propose(*session).num_nodes(), 6);
}

TEST_F(FeatureProposerTest, AnswersOnItsOwnPredictionsUntilFeaturesCome) {
  const auto session = Open();
  session->Append(Tokens(9));
  session->AppendFeatures(0, Features(8));
  session->Want({.node_budget = 16});
  GrowAll();
  const std::vector<int32_t> committed = {Propose(*session).nodes[0].token_id};
  session->Append(committed);
  session->Want({.node_budget = 16});
  ASSERT_EQ(session->readiness(), Readiness::kReady);
  GrowAll();
  const TokenTree provisional = Propose(*session);
  EXPECT_EQ(provisional.position, 10);
  const int num_announced = num_announced_;
  session->AppendFeatures(8, Features(1));
  session->Want({.node_budget = 16});
  EXPECT_EQ(session->readiness(), Readiness::kReady);
  GrowAll();
  EXPECT_GT(num_announced_, num_announced) << "there is a better tree";
  EXPECT_NE(Propose(*session).nodes, provisional.nodes);
}

TEST_F(FeatureProposerTest, AnswersWithAnEmptyTreeIfFeaturesDoNotCome) {
  const auto session = Open();
  session->Append(Tokens(9));
  session->Want({.node_budget = 16});
  GrowAll();
  EXPECT_EQ(session->readiness(), Readiness::kNotYet);
  now_ += DraftProposer::kMaxAnswerTime;
  GrowAll();
  EXPECT_EQ(num_announced_, 1);
  EXPECT_EQ(session->readiness(), Readiness::kReady);
  EXPECT_EQ(Propose(*session).position, 9);
  EXPECT_EQ(Propose(*session).num_nodes(), 0);
  EXPECT_EQ(session->readiness(), Readiness::kNotYet);
  session->AppendFeatures(0, Features(8));
  GrowAll();
  EXPECT_EQ(session->readiness(), Readiness::kReady) << "without a new question";
  EXPECT_GT(Propose(*session).num_nodes(), 6);
}

TEST_F(FeatureProposerTest, TheThreadAnswersInTimeAlthoughNothingCanGrow) {
  absl::Notification announced;
  const std::unique_ptr<DraftProposer> proposer = MakeProposer(SteadyNow);
  proposer->Start();
  const auto session = proposer->Open({.announce = [&announced] {
    if (!announced.HasBeenNotified()) announced.Notify();
  }});
  session->Append(Tokens(9));
  session->Want({.node_budget = 16});
  EXPECT_TRUE(announced.WaitForNotificationWithTimeout(absl::Seconds(60)));
  EXPECT_EQ(session->readiness(), Readiness::kReady);
}

// The stream's credit is what its sessions have not used. If idle sessions kept it, the others would get no features.
TEST_F(FeatureProposerTest, PromptsThatAreStillComputedLeaveTheCreditToOthers) {
  std::vector<std::unique_ptr<Session>> prompts;
  int64_t num_unused = 0;
  for (int i = 0; i < 20; ++i) {
    prompts.push_back(Open());
    prompts.back()->Append(Tokens(60));
    prompts.back()->AppendFeatures(0, Features(59));
  }
  GrowAll();
  for (const auto& session : prompts) num_unused += session->num_unused_feature_values();
  EXPECT_LT(num_unused, 100 * kTinyHidden) << "of 1180 features";
  EXPECT_GE(num_announced_, 19) << "there is room for more features";
}

TEST_F(FeatureProposerTest, ASessionThatHadToMakeRoomIsForgotten) {
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 8; ++i) {  // there is room for 6 contexts
    sessions.push_back(Open());
    sessions.back()->Append(Tokens(500));
    sessions.back()->AppendFeatures(0, Features(499));
    sessions.back()->Want({.node_budget = 16});
    GrowAll();
    sessions.back()->Want({.node_budget = 0});
    GrowAll();
  }
  EXPECT_EQ(sessions[0]->readiness(), Readiness::kForgotten) << "before it hears of anything new";
  sessions[0]->Append(Tokens(1));
  sessions[0]->AppendFeatures(499, Features(1));
  sessions[0]->Want({.node_budget = 16});
  GrowAll();
  EXPECT_EQ(sessions[0]->readiness(), Readiness::kForgotten);
  EXPECT_EQ(sessions[0]->num_unused_feature_values(), 0);
  EXPECT_EQ(Propose(*sessions[0]).num_nodes(), 0);
  EXPECT_EQ(sessions[7]->readiness(), Readiness::kReady);
  sessions.clear();
  GrowAll();
}

}  // namespace
}  // namespace foretoken::proposer
