// SPDX-License-Identifier: Apache-2.0
// The time between a step's launch and its finish. If this test fails, the engine reads results before the device has
// them, a GPU stands still while the host works, or a step waits too long for proposers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/model/runnable_model.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/forwarding_backend.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/fakes/late_backend.h"
#include "tests/testing/models/random_checkpoint.h"
#include "tests/testing/temp_dir.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using testing::InProcessProposers;
using testing::LateBackend;
using testing::Results;

class EngineLaunchTest : public testing::EngineFixture {
 protected:
  // Later engines of this test run on the late backend.
  void UseLateBackend() {
    late_model_ = std::make_unique<testing::LoadedModel>(testing::LoadModel(
        testing::SourcePath("deploy/demo/target"), {.wrap_backend = [this](std::unique_ptr<kernels::Backend> backend) {
          auto late = std::make_unique<LateBackend>(std::move(backend));
          late_ = late.get();
          return late;
        }}));
    Use(*late_model_->transformer);
  }

  std::unique_ptr<testing::LoadedModel> late_model_;
  LateBackend* late_ = nullptr;
};

// Counts forward passes.
class CountingBackend final : public testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void Embed(const kernels::EmbedArgs& args) override {
    ++num_passes;
    ForwardingBackend::Embed(args);
  }

  std::atomic<int> num_passes{0};
};

TEST_F(EngineLaunchTest, StartingEndsWhenTheCostOfRowsIsLearned) {
  CountingBackend* counting = nullptr;
  testing::LoadedModel model = testing::LoadModel(
      testing::SourcePath("deploy/demo/target"), {.wrap_backend = [&](std::unique_ptr<kernels::Backend> backend) {
        auto wrapped = std::make_unique<CountingBackend>(std::move(backend));
        counting = wrapped.get();
        return wrapped;
      }});
  Use(*model.transformer);
  InProcessProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {});
  engine->Start();
  // Both ends of the curve, each once to bring memory in and once to learn. The engine learns on until a request comes.
  EXPECT_GE(counting->num_passes, 4);
  engine->Stop();
}

TEST_F(EngineLaunchTest, APulseStopsWhileTheDeviceHangs) {
  UseLateBackend();
  InProcessProposers none;
  absl::Notification hangs, goes_on;
  late_->set_on_wait([&] {
    if (hangs.HasBeenNotified()) return;
    hangs.Notify();
    goes_on.WaitForNotification();
  });
  const std::unique_ptr<Engine> engine = MakeEngine(none, {});
  engine->Start();  // computes without drawing, so it waits for no result
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), Request("import os\n", 0, 5)), absl::OkStatus());
  hangs.WaitForNotification();
  const Pulse pulse = engine->pulse();
  EXPECT_FALSE(pulse.is_idle);
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_EQ(engine->pulse().num_beats, pulse.num_beats);
  goes_on.Notify();
  while (!engine->pulse().is_idle) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_GT(engine->pulse().num_beats, pulse.num_beats);
  engine->Stop();
}

// Otherwise a long prompt over such a model would look like a device that hangs.
TEST_F(EngineLaunchTest, APulseBeatsForEveryExpertThatAStepReads) {
  const testing::TempDir directory;
  directory.CopyFrom(testing::RandomCheckpoint("qwen3_moe").directory());
  std::filesystem::copy(testing::SourcePath("deploy/demo/target/tokenizer.json"), directory.path());
  model::OpenedModel opened = model::OpenModel({.directory = directory.path()}).value();
  const model::RunnableModel model = model::LoadModel(std::move(opened),
                                                      {.max_rows = 512,
                                                       .context = {.max_context_tokens = 1024, .num_blocks = 64},
                                                       .max_expert_bytes = size_t{1} << 20},
                                                      nullptr)
                                         .value();
  Use(*model.transformer);
  InProcessProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {});
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), Request("import os\n", 0, 5)), absl::OkStatus());
  const uint64_t before = engine->pulse().num_beats;
  ASSERT_TRUE(engine->Step());
  EXPECT_GT(engine->pulse().num_beats, before + 5);
  while (engine->Step()) continue;
}

TEST_F(EngineLaunchTest, NoResultIsReadBeforeTheDeviceHasIt) {
  std::vector<GenerationRequest> requests = {Request("def read_config(path):\n", 0),
                                             Request("import os\nimport sys\n", 0.8f),
                                             Request("x = 1\nx = 1\nx = 1\n", 0.5f)};
  requests[0].output.num_prompt_logprobs = 2;
  requests[1].output.num_logprobs = 3;
  requests[2].verification = kernels::VerificationRule::kRejectionSampling;
  InProcessProposers none;
  const Results truth = Generate(requests, none);
  const testing::Guess oracle = testing::Oracle(testing::WholeTexts(truth, requests));
  InProcessProposers on_time({{"oracle", oracle}});
  const Results expected = Generate(requests, on_time, {.now = testing::EvenClock()});
  UseLateBackend();
  InProcessProposers late({{"oracle", oracle}});
  EXPECT_EQ(Generate(requests, late, {.now = testing::EvenClock()}), expected);
  EXPECT_GT(stats_.proposers[0].num_accepted, 40);
}

// The engine looks up the prompt, reserves blocks and informs proposers without waiting for the device.
TEST_F(EngineLaunchTest, ARequestIsAdmittedWhileTheDeviceComputes) {
  UseLateBackend();
  InProcessProposers proposers({{"random", testing::Random(1)}});
  const std::unique_ptr<Engine> engine = MakeEngine(proposers, {});
  const GenerationRequest first = Request("import os\n", 0), second = Request("import sys\n", 0);
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), first), absl::OkStatus());
  int num_launches = 0, num_queued = -1;
  size_t num_open = 0;
  late_->set_on_launch([&] {
    if (++num_launches != 2) return;
    ASSERT_EQ(engine->Submit(engine->Reserve().value(), second), absl::OkStatus());
  });
  late_->set_on_wait([&] {
    num_queued = engine->GetStats().num_queued;
    num_open = proposers.num_open();
  });
  engine->Step();
  EXPECT_EQ(num_open, 1);
  engine->Step();
  EXPECT_EQ(num_launches, 2);
  EXPECT_EQ(num_queued, 0);
  EXPECT_EQ(num_open, 2);
  while (engine->Step()) {
  }
  EXPECT_EQ(results_.size(), 2);
}

// A sequence must not end while a step computes it.
TEST_F(EngineLaunchTest, AnAbortWaitsForTheEndOfTheStep) {
  UseLateBackend();
  InProcessProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {});
  const GenerationRequest request = Request("import os\n", 0);
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), request), absl::OkStatus());
  late_->set_on_launch([&] { engine->Abort(request.ticket); });
  EXPECT_TRUE(engine->Step());
  EXPECT_FALSE(engine->Step());
  EXPECT_EQ(results_.begin()->second.token_ids.size(), 1);
  EXPECT_EQ(results_.begin()->second.finish_reason, FinishReason::kAbort);
}

// The device does not wait until clients receive the outputs.
TEST_F(EngineLaunchTest, OutputsAreSentWhileTheDeviceComputesTheNextStep) {
  UseLateBackend();
  InProcessProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {});
  const GenerationRequest request = Request("import os\n", 0, /*max_tokens=*/3);
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), request), absl::OkStatus());
  std::vector<size_t> told_at_launch, told_at_wait;
  const auto num_told = [&] { return results_.empty() ? 0 : results_.begin()->second.token_ids.size(); };
  late_->set_on_launch([&] { told_at_launch.push_back(num_told()); });
  late_->set_on_wait([&] { told_at_wait.push_back(num_told()); });
  while (engine->Step()) {
  }
  EXPECT_THAT(told_at_launch, ElementsAre(0, 0, 1));
  EXPECT_THAT(told_at_wait, ElementsAre(0, 1, 2));
  EXPECT_EQ(num_told(), 3);  // the last step has no successor
  EXPECT_EQ(results_.begin()->second.finish_reason, FinishReason::kLength);
}

// This holds also for a sequence that is preempted before the next launch.
TEST_F(EngineLaunchTest, EveryTokenIsSentByTheNextStepEvenWithFewBlocks) {
  UseLateBackend();
  InProcessProposers none;
  std::vector<GenerationRequest> requests = {Request("import os\n", 0, 100), Request("import sys\n", 0, 100)};
  int num_waits = 0;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {.num_blocks = 9});
  late_->set_on_wait([&] {
    size_t num_told = 0;
    for (const auto& [key, result] : results_) num_told += result.token_ids.size();
    EXPECT_EQ(num_told, engine->GetStats().num_generated_tokens) << "at wait " << num_waits;
    ++num_waits;
  });
  for (const GenerationRequest& request : requests) {
    ASSERT_EQ(engine->Submit(engine->Reserve().value(), request), absl::OkStatus());
  }
  while (engine->Step()) {
  }
  EXPECT_GT(num_waits, 100);
  EXPECT_GT(engine->GetStats().num_preemptions, 0);
}

// Proposers that guess, with a callback at every wait for them.
class AwaitedProposers final : public InProcessProposers {
 public:
  using InProcessProposers::InProcessProposers;

  void set_on_wait(std::function<void(absl::Duration max_wait)> on_wait) { on_wait_ = std::move(on_wait); }
  std::vector<Proposal> TakeProposals(absl::Duration max_wait) override {
    if (max_wait > absl::ZeroDuration()) on_wait_(max_wait);
    return InProcessProposers::TakeProposals(max_wait);
  }

 private:
  std::function<void(absl::Duration)> on_wait_;
};

TEST_F(EngineLaunchTest, EveryTokenIsSentBeforeAWaitForProposals) {
  UseLateBackend();
  AwaitedProposers proposers({{"random", testing::Random(1)}});
  const std::unique_ptr<Engine> engine = MakeEngine(proposers, {});
  int num_waits = 0;
  proposers.set_on_wait([&](absl::Duration) {
    const size_t num_told = results_.empty() ? 0 : results_.begin()->second.token_ids.size();
    EXPECT_EQ(num_told, engine->GetStats().num_generated_tokens) << "at wait " << num_waits;
    ++num_waits;
  });
  const GenerationRequest request = Request("import os\n", 0, 100);
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), request), absl::OkStatus());
  while (engine->Step()) {
  }
  EXPECT_GT(num_waits, 1);
}

// A step is expected to take as long as the one before it.
TEST_F(EngineLaunchTest, AWaitForProposalsMayTakeAQuarterOfTheStepAtMost) {
  AwaitedProposers proposers({{"random", testing::Random(1)}});
  GenerationRequest request = Request("import os\n", 0, 100);
  request.speculation.reports_steps = true;
  int num_waits = 0;
  proposers.set_on_wait([&](absl::Duration max_wait) {
    if (reports_.empty() || reports_.begin()->second.size() < 2) return;  // no step has decoded yet
    const StepTimes& last = reports_.begin()->second.back().step.times;
    EXPECT_LE(absl::ToDoubleMilliseconds(max_wait), (last.forward_ms + last.draw_ms) / 4) << "at wait " << num_waits;
    ++num_waits;
  });
  Generate({request}, proposers);
  EXPECT_GT(num_waits, 1);
}

}  // namespace
}  // namespace foretoken::verifier
