// SPDX-License-Identifier: Apache-2.0
// Trials of drafters on their target. If this test fails, a head that reads other layers than it was trained on serves
// at a part of its acceptance, and nothing else shows it.
#include "proposer_service/draft/drafter_trial.h"

#include <algorithm>
#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/features/load_drafter.h"
#include "proposer_service/make_proposer.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/models/demo_drafters.h"

namespace foretoken::proposer {
namespace {

using ::testing::HasSubstr;
using testing::SourcePath;

model::RunnableModel LoadTarget() {
  return LoadTrialTarget({.target_directory = SourcePath("deploy/demo/target"), .num_threads = 2}, std::nullopt)
      .value();
}

absl::Status Try(const Drafter& drafter) {
  model::RunnableModel target = LoadTarget();
  return TryDrafter(*drafter.model, *drafter.description.features, target);
}

Drafter LoadDemoHead(const std::string& feature_layers, const DraftForestOptions& forest = {}) {
  return LoadDrafter("eagle3", {.model_directory = SourcePath("deploy/demo/eagle3"),
                                .target_directory = SourcePath("deploy/demo/target"),
                                .feature_layers = feature_layers,
                                .num_threads = 2,
                                .kv_cache_mb = 16,
                                .forest = forest})
      .value();
}

absl::Status TryDemoHead(const std::string& feature_layers) { return Try(LoadDemoHead(feature_layers)); }

// A drafter that holds few positions.
class ShortDraft : public DraftModel {
 public:
  ShortDraft(DraftModel& model, int32_t max_positions) : model_(model), limits_(model.limits()) {
    limits_.max_positions = max_positions;
  }
  const Limits& limits() const override { return limits_; }
  kernels::ConstTensorView Forward(const DraftPass& pass) override { return model_.Forward(pass); }
  void Move(std::span<const kernels::KvMove> moves) override { model_.Move(moves); }
  void Synchronize() override { model_.Synchronize(); }
  kernels::Backend& backend() const override { return model_.backend(); }

 private:
  DraftModel& model_;
  Limits limits_;
};

// A drafter whose rows are not finite, as those of a damaged file.
class BrokenDraft : public ShortDraft {
 public:
  using ShortDraft::ShortDraft;
  kernels::ConstTensorView Forward(const DraftPass& pass) override {
    DraftPass broken = pass;
    std::ranges::fill(broken.given_features, uint16_t{0x7fc0});  // NaN
    return ShortDraft::Forward(broken);
  }
};

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
                             .num_threads = 2,
                             .kv_cache_mb = 16}};
  telemetry::Metrics metrics;
  EXPECT_THAT(std::string(MakeProposer(config, metrics).status().message()), HasSubstr("misread"));
  config.draft.try_on_target = false;
  EXPECT_EQ(MakeProposer(config, metrics).status(), absl::OkStatus());
}

// Passes of few rows change nothing: the texts are scored in pieces.
TEST(DrafterTrial, ScoresAllTokensWithSmallPasses) {
  model::RunnableModel target = LoadTarget();
  const auto try_with = [&](int32_t num_rows) {
    const Drafter drafter = LoadDemoHead("3,5,6", {.max_tree_rows = 1, .max_context_rows = num_rows});
    return std::string(TryDrafter(*drafter.model, *drafter.description.features, target).message());
  };
  EXPECT_THAT(try_with(1), HasSubstr("of the target's 384 tokens"));
  EXPECT_EQ(try_with(1), try_with(128));
}

TEST(DrafterTrial, IsNoneIfItScoresTooFewTokens) {
  model::RunnableModel target = LoadTarget();
  const Drafter drafter = LoadDemoHead("");
  ShortDraft few(*drafter.model, 24), enough(*drafter.model, 48);
  EXPECT_THAT(std::string(TryDrafter(few, *drafter.description.features, target).message()),
              HasSubstr("tokens, and needs 100"));
  EXPECT_EQ(TryDrafter(enough, *drafter.description.features, target), absl::OkStatus());
}

TEST(DrafterTrial, RefusesADrafterWhoseGuessesAreNotFinite) {
  model::RunnableModel target = LoadTarget();
  const Drafter drafter = LoadDemoHead("");
  BrokenDraft broken(*drafter.model, drafter.model->limits().max_positions);
  EXPECT_THAT(std::string(TryDrafter(broken, *drafter.description.features, target).message()),
              HasSubstr("0 of the target's 384 tokens are the drafter's best guess"));
}

TEST(DrafterTrial, TakesNoMemoryThatIsNotFree) {
  const DraftOptions options = {.target_directory = SourcePath("deploy/demo/target"), .num_threads = 2};
  const absl::Status status = LoadTrialTarget(options, 1 << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("MiB, and 1 MiB are free"));
  EXPECT_EQ(LoadTrialTarget(options, 64 << 20).status(), absl::OkStatus());
}

// TinyTarget has no layers, as a pod that has only what the drafter itself reads.
TEST(DrafterTrial, ADrafterServesUntriedWhereTheTargetCannotBeLoaded) {
  const testing::TinyTarget target;
  const testing::TempDir dir;
  testing::MakeTinyEagle3({}).Write(dir);
  const Config config = {
      .method = "eagle3",
      .draft = {
          .model_directory = dir.path(), .target_directory = target.directory(), .num_threads = 1, .kv_cache_mb = 1}};
  telemetry::Metrics metrics;
  const testing::CapturedLog log;
  EXPECT_EQ(MakeProposer(config, metrics).status(), absl::OkStatus());
  EXPECT_THAT(log.Lines(), ::testing::Contains(::testing::AllOf(
                               ::testing::StartsWith("warning the drafter serves untried"), HasSubstr("is missing"))));
}

TEST(DrafterTrial, TriesHeadsOfTheLastHiddenStateByTheirGuesses) {
  EXPECT_EQ(Try(testing::DemoMlpSpeculator()), absl::OkStatus());
  EXPECT_THAT(std::string(Try(testing::RandomEagle()).message()), HasSubstr("the drafter does not fit its target"));
}

}  // namespace
}  // namespace foretoken::proposer
