// SPDX-License-Identifier: Apache-2.0
// Trials of drafters on their target. If this test fails, a head that reads other layers than it was trained on serves
// at a part of its acceptance, and nothing else shows it.
#include "proposer_service/draft/drafter_trial.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/features/load_drafter.h"
#include "proposer_service/make_proposer.h"
#include "tests/testing/models/demo_drafters.h"

namespace foretoken::proposer {
namespace {

using ::testing::HasSubstr;
using testing::SourcePath;

absl::Status Try(const Drafter& drafter) {
  return TryDrafter(*drafter.model, *drafter.description.features,
                    {.target_directory = SourcePath("deploy/demo/target"), .num_threads = 2});
}

absl::Status TryDemoHead(const std::string& feature_layers) {
  return Try(LoadDrafter("eagle3", {.model_directory = SourcePath("deploy/demo/eagle3"),
                                    .target_directory = SourcePath("deploy/demo/target"),
                                    .feature_layers = feature_layers,
                                    .num_threads = 2,
                                    .kv_cache_mb = 16})
                 .value());
}

TEST(DrafterTrial, FindsOutAHeadWhoseLayersAreShiftedByOne) {
  EXPECT_EQ(TryDemoHead(""), absl::OkStatus());
  for (const char* shifted : {"3,5,6", "1,3,4"}) {
    const absl::Status status = TryDemoHead(shifted);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("misread: with the hidden states ") + shifted));
    EXPECT_THAT(std::string(status.message()), HasSubstr("Start it with --feature_layers=2,4,5"));
  }
}

TEST(DrafterTrial, ComesBeforeTheProposerServes) {
  Config config = {.method = "eagle3",
                   .draft = {.model_directory = SourcePath("deploy/demo/eagle3"),
                             .target_directory = SourcePath("deploy/demo/target"),
                             .feature_layers = "3,5,6",
                             .try_on_target = true,
                             .num_threads = 2,
                             .kv_cache_mb = 16}};
  telemetry::Metrics metrics;
  EXPECT_THAT(std::string(MakeProposer(config, metrics).status().message()), HasSubstr("misread"));
  config.draft.try_on_target = false;
  EXPECT_EQ(MakeProposer(config, metrics).status(), absl::OkStatus());
}

TEST(DrafterTrial, TriesHeadsOfTheLastHiddenStateByTheirGuesses) {
  EXPECT_EQ(Try(testing::DemoMlpSpeculator()), absl::OkStatus());
  EXPECT_THAT(std::string(Try(testing::RandomEagle()).message()), HasSubstr("the drafter does not fit its target"));
}

}  // namespace
}  // namespace foretoken::proposer
