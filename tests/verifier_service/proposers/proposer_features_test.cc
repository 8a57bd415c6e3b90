// SPDX-License-Identifier: Apache-2.0
// The pool and a real proposal service whose proposer reads features of the target. If this test fails, drafters are
// refused that fit, used that do not, or miss features.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "tests/testing/captured_log.h"
#include "tests/verifier_service/proposers/feature_drafter.h"

namespace foretoken::verifier {
namespace {

using speculation::FeatureProjection;
using speculation::TargetFeatures;
using testing::FeatureRecorder;
using ::testing::HasSubstr;

// Answers every demand with features whose first value is the position, like an engine that has computed `end`
// positions and knows features from `begin` on. Gives as many positions as the demand has, or all that there are.
void Supply(ProposerPool& pool, int32_t begin, int32_t end) {
  for (const FeatureDemand& demand : pool.FeatureDemands()) {
    const int32_t first = std::max(demand.begin, begin), last = std::min(first + demand.end - demand.begin, end);
    if (first >= last) continue;
    std::vector<uint16_t> values(static_cast<size_t>(last - first) * demand.source->width());
    for (int32_t p = first; p < last; ++p) values[(p - first) * demand.source->width()] = static_cast<uint16_t>(p);
    pool.GiveFeatures(demand, first, std::move(values));
  }
  pool.Flush({});
}

TEST(ProposerFeatures, CreditComesBeforeTheFirstSession) {
  Drafter drafter(Projected(7));
  const auto stub = drafter.Connect();
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kLong));
  const auto stream = stub->Propose(&context);
  v1::ProposeResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.feature_credit_bytes(), 16 << 20);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(ProposerFeatures, NoMoreKindsOfFeaturesThanTheBoundAreUsed) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  std::string spec = "ngram=";
  for (uint16_t weight = 1; weight <= 4; ++weight) {  // all read their projections at the same time
    drafters.push_back(std::make_unique<Drafter>(Projected(weight)));
    absl::StrAppend(&spec, weight > 1 ? "," : "", drafters.back()->spec().substr(6));
  }
  ProposerPoolOptions options = Options();
  options.max_feature_sources = 2;
  const testing::CapturedLog log;
  const auto pool = MakePool({spec}, options);
  EXPECT_TRUE(Eventually([&] { return pool->GetStatus()[0].num_connected == 2; }));
  EXPECT_TRUE(Eventually([&] {
    return std::ranges::count_if(log.Lines(), [](const std::string& line) {
             return absl::StrContains(line, "other features than the 2 kinds");
           }) == 2;
  }));
  EXPECT_EQ(pool->GetStatus()[0].num_connected, 2);
  EXPECT_EQ(pool->FeatureSources().size(), 2);
}

TEST(ProposerFeatures, EqualDraftersShareTheirFeatures) {
  Drafter a(Projected(7)), b(Projected(7)), c(Projected(8));
  const auto pool = MakePool({absl::StrCat(a.spec(), ",", b.spec().substr(6), ",", c.spec().substr(6))}, Options());
  ASSERT_TRUE(IsConnected(*pool, 3));
  EXPECT_EQ(pool->FeatureSources().size(), 2);
}

TEST(ProposerFeatures, TheReadersOfASourceAreKnown) {
  Drafter a(Projected(7)), b(Projected(7)), other(Projected(8), {}, "suffix");
  const auto pool = MakePool({other.spec(), absl::StrCat(a.spec(), ",", b.spec().substr(6))}, Options());
  ASSERT_TRUE(Eventually([&] { return pool->GetStatus()[0].num_connected + pool->GetStatus()[1].num_connected == 3; }));
  std::vector<uint32_t> readers;
  for (const FeatureSource& source : pool->FeatureSources()) {
    readers.push_back(pool->ReadersOf(source));
    EXPECT_EQ(readers.back(), *source == Projected(8) ? 0b01 : 0b10);
  }
  EXPECT_EQ(readers.size(), 2);
  EXPECT_EQ(pool->ReadersOf(std::make_shared<const TargetFeatures>()), 0);
}

TEST(ProposerFeatures, EverySessionGetsEveryPosition) {
  Drafter drafter(Projected(7));
  const auto pool = MakePool({drafter.spec()}, Options());
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 7, /*num_prompt_tokens=*/2000);
  for (int step = 0; step < 10; ++step) {
    speaker.Step();
    Supply(*pool, /*begin=*/5, static_cast<int32_t>(speaker.num_tokens()) - 1);
  }
  EXPECT_TRUE(Eventually([&] {
    Supply(*pool, 5, static_cast<int32_t>(speaker.num_tokens()) - 1);
    return drafter.recorder().Features(0).size() == 2004;
  }));
  for (const auto& [position, value] : drafter.recorder().Features(0)) EXPECT_EQ(position, value);
  EXPECT_EQ(pool->GetCounters()[0].num_feature_bytes, 2004 * 16);
}

// A demand has room for few positions of such a drafter, and the verifier knows none of the first ones.
TEST(ProposerFeatures, FeaturesMayBeginBehindTheFirstDemand) {
  Drafter drafter({.layers = {2}, .target_hidden_size = rpc::kMaxFeatureWidth});
  ProposerPoolOptions options = Options();
  options.target = rpc::TargetShape{.hidden_size = rpc::kMaxFeatureWidth, .num_layers = 4};
  const auto pool = MakePool({drafter.spec()}, options);
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 7, /*num_prompt_tokens=*/300);
  speaker.Step();
  EXPECT_TRUE(Eventually([&] {
    Supply(*pool, /*begin=*/200, /*end=*/300);
    return drafter.recorder().Features(0).size() == 100;
  }));
  EXPECT_EQ(drafter.recorder().Features(0).begin()->first, 200);
  for (const auto& [position, value] : drafter.recorder().Features(0)) EXPECT_EQ(position, value);
}

// A stream that breaks loses what its session had; the new session gets everything again.
TEST(ProposerFeatures, ASessionThatMovesGetsAllFeaturesAgain) {
  auto first = std::make_unique<Drafter>(Projected(7));
  Drafter second(Projected(7));
  const auto pool = MakePool({absl::StrCat(first->spec(), ",", second.spec().substr(6))}, Options());
  ASSERT_TRUE(IsConnected(*pool, 2));
  Speaker a(*pool, 1), b(*pool, 2);
  const auto has_all = [&](Drafter& drafter, size_t num_positions) {
    return Eventually([&] {
      Supply(*pool, 0, static_cast<int32_t>(a.num_tokens()) - 1);
      return drafter.recorder().Features(0).size() >= num_positions;
    });
  };
  a.Step();
  b.Step();
  ASSERT_TRUE(has_all(*first, 3));
  ASSERT_TRUE(has_all(second, 3));
  first.reset();
  for (int step = 0; step < 4; ++step) {
    a.Step();
    b.Step();
  }
  EXPECT_TRUE(has_all(second, 7));
  EXPECT_EQ(pool->FeatureSources().size(), 1);
}

TEST(ProposerFeatures, AProposerThatIsGoneStillCountsForAWhile) {
  std::atomic<int64_t> seconds = 1000;
  ProposerPoolOptions options = Options();
  options.now = [&] { return absl::FromUnixSeconds(seconds); };
  auto drafter = std::make_unique<Drafter>(Projected(7));
  const auto pool = MakePool({drafter->spec()}, options);
  ASSERT_TRUE(IsConnected(*pool));
  ASSERT_EQ(pool->FeatureSources().size(), 1);
  const std::weak_ptr<const TargetFeatures> features = pool->FeatureSources().at(0);
  drafter.reset();
  ASSERT_TRUE(Eventually([&] { return pool->GetStatus()[0].num_connected == 0; }));
  seconds += 50;
  EXPECT_EQ(pool->FeatureSources().size(), 1);
  seconds += 20;
  EXPECT_EQ(pool->FeatureSources().size(), 0);
  EXPECT_TRUE(features.expired()) << "they take up to a GiB";
}

TEST(ProposerFeatures, AReplicaThatNeedsOtherFeaturesThanBeforeHoldsNoRoomForThose) {
  auto drafter = std::make_unique<Drafter>(Projected(7));
  const int port = drafter->port();
  ProposerPoolOptions options = Options();
  options.max_feature_sources = 1;
  const auto pool = MakePool({drafter->spec()}, options);
  ASSERT_TRUE(IsConnected(*pool));
  drafter.reset();
  ASSERT_TRUE(IsConnected(*pool, 0));
  drafter = std::make_unique<Drafter>(Projected(8), proposer::SessionLimits(), "ngram", "", port);
  EXPECT_TRUE(IsConnected(*pool));
  ASSERT_EQ(pool->FeatureSources().size(), 1);
  EXPECT_EQ(*pool->FeatureSources()[0], Projected(8));
}

// The engine has had no room for them. It is asked again after a minute.
TEST(ProposerFeatures, RefusedFeaturesAreNotUsedForAWhile) {
  const testing::CapturedLog log;
  std::atomic<int64_t> seconds = 1000;
  ProposerPoolOptions options = Options();
  options.now = [&] { return absl::FromUnixSeconds(seconds); };
  Drafter drafter(Projected(7));
  const auto pool = MakePool({drafter.spec()}, options);
  ASSERT_TRUE(IsConnected(*pool));
  std::weak_ptr<const speculation::TargetFeatures> features = pool->FeatureSources().at(0);
  pool->RefuseFeatures(features.lock(), "its features: no room");
  EXPECT_THAT(pool->FeatureSources(), ::testing::IsEmpty());
  EXPECT_TRUE(Eventually([&] { return features.expired(); })) << "refused features take up to a GiB";
  EXPECT_EQ(pool->GetStatus()[0].num_connected, 0);
  const auto num_lines = [&] {
    return std::ranges::count_if(log.Lines(), [](const std::string& line) {
      return absl::StrContains(line, "not used: its features: no room");
    });
  };
  EXPECT_TRUE(Eventually([&] { return num_lines() == 1; })) << absl::StrJoin(log.Lines(), " ");
  seconds += 30;
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(pool->GetStatus()[0].num_connected, 0);
  seconds += 40;
  EXPECT_TRUE(Eventually([&] { return pool->GetStatus()[0].num_connected == 1; }));
  EXPECT_EQ(pool->FeatureSources().size(), 1);
  EXPECT_EQ(num_lines(), 1);
}

struct Unfit {
  const char* why;
  TargetFeatures features;
  void (*change)(ProposerPoolOptions& options) = [](ProposerPoolOptions&) {};
};

class UnfitDrafter : public ::testing::TestWithParam<Unfit> {};

TEST_P(UnfitDrafter, IsRefusedByName) {
  const testing::CapturedLog log;
  Drafter drafter(GetParam().features);
  ProposerPoolOptions options = Options();
  GetParam().change(options);
  const auto pool = MakePool({drafter.spec()}, options);
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(absl::StrJoin(log.Lines(), " "), GetParam().why); }))
      << absl::StrJoin(log.Lines(), " ");
  EXPECT_EQ(pool->GetStatus()[0].num_connected, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Reasons, UnfitDrafter,
    ::testing::Values(Unfit{"not used: it needs the target's feature \"hidden_states.1\"", Projected(1),
                            [](ProposerPoolOptions& options) { options.target.reset(); }},
                      Unfit{"not used: needed_features: expected \"hidden_states.0\" to \"hidden_states.4\"",
                            {.layers = {5}, .target_hidden_size = 16}},
                      Unfit{"not used: target_hidden_size: expected 16, got 32",
                            {.layers = {1}, .target_hidden_size = 32}},
                      Unfit{"not used: its projection: expected at most 100 bytes, got 640", Projected(1),
                            [](ProposerPoolOptions& options) { options.max_projection_bytes = 100; }},
                      Unfit{"not used: it needs other features than the 0 kinds", Projected(1),
                            [](ProposerPoolOptions& options) { options.max_feature_sources = 0; }}));

}  // namespace
}  // namespace foretoken::verifier
