// SPDX-License-Identifier: Apache-2.0
// Requests with deadlines. If this test fails, the engine computes for clients that have given up, or refuses requests
// that it could have served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/base/error_text.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::verifier {
namespace {

using testing::EngineOptions;
using testing::InProcessProposers;

class EngineDeadlineTest : public testing::EngineFixture {
 protected:
  // Every reading of the clock takes a tick, so every step takes some, whatever the machine.
  EngineOptions Options(const EngineConfig& config = {.max_running_samples = 1}) {
    return {.config = config, .now = [this] { return now_ += tick_; }};
  }
  GenerationRequest Due(absl::Duration left, int32_t max_tokens = 1) {
    GenerationRequest request = Request("import os\n", 0, max_tokens);
    request.stop.ignore_eos = true;
    request.deadline = left == absl::InfiniteDuration() ? absl::InfiniteFuture() : now_ + left;
    return request;
  }
  static absl::Status Submit(Engine& engine, const GenerationRequest& request) {
    absl::StatusOr<QueuePlace> place = engine.Reserve({.deadline = request.deadline});
    return place.ok() ? engine.Submit(*std::move(place), request) : place.status();
  }
  static void StepUntilIdle(Engine& engine) {
    while (engine.Step()) continue;
  }

  GenerationRequest LongPrompt(absl::Duration left) {
    GenerationRequest request = Due(left);
    request.prompt.assign(800, 7);
    request.prompt.front() = next_token_++;  // no prompt is in the prefix cache
    return request;
  }

  absl::Time now_ = absl::UnixEpoch();
  absl::Duration tick_ = absl::Seconds(1);
  int32_t next_token_ = 8;
  InProcessProposers none_;
};

TEST_F(EngineDeadlineTest, APassedDeadlineIsRefusedBeforeTheRequestHasAPlace) {
  const std::unique_ptr<Engine> engine = MakeEngine(none_, Options());
  const absl::Status refused = Submit(*engine, Due(absl::ZeroDuration()));
  EXPECT_EQ(refused.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(engine->GetStats().num_queued, 0);
}

TEST_F(EngineDeadlineTest, ADeadlineThatLeavesTimeIsMet) {
  const std::unique_ptr<Engine> engine = MakeEngine(none_, Options());
  const GenerationRequest request = Due(absl::Hours(1), /*max_tokens=*/3);
  ASSERT_EQ(Submit(*engine, request), absl::OkStatus());
  StepUntilIdle(*engine);
  EXPECT_EQ(results_.at({request.ticket, 0}).token_ids.size(), 3);
}

TEST_F(EngineDeadlineTest, ARequestWhoseDeadlinePassesInTheQueueCostsNoRow) {
  const std::unique_ptr<Engine> engine = MakeEngine(none_, Options());
  ASSERT_EQ(Submit(*engine, Due(absl::InfiniteDuration(), /*max_tokens=*/100)), absl::OkStatus());
  engine->Step();
  GenerationRequest late = Due(absl::Seconds(40));
  late.num_samples = 3;
  ASSERT_EQ(Submit(*engine, late), absl::OkStatus());
  const GenerationRequest last = Due(absl::InfiniteDuration());
  ASSERT_EQ(Submit(*engine, last), absl::OkStatus());
  while (engine->GetStats().num_queued > 0) engine->Step();
  EXPECT_EQ(results_.at({late.ticket, 0}).error.code(), absl::StatusCode::kDeadlineExceeded);
  StepUntilIdle(*engine);
  EXPECT_TRUE(results_.at({late.ticket, 0}).token_ids.empty());
  EXPECT_EQ(results_.at({last.ticket, 0}).token_ids.size(), 1) << "the refused request left its room";
  const EngineStats stats = engine->GetStats();
  EXPECT_EQ(stats.num_prompt_tokens + stats.num_cached_tokens, 2 * last.prompt.size());
  EXPECT_EQ(stats.num_queued_samples, 0);
  EXPECT_EQ(stats.num_free_blocks + stats.num_cached_blocks, stats.num_blocks);
}

TEST_F(EngineDeadlineTest, ARequestWithOutputIsNeverRefused) {
  const std::unique_ptr<Engine> engine = MakeEngine(none_, Options());
  GenerationRequest request = Due(absl::Seconds(30), /*max_tokens=*/20);
  request.num_samples = 2;  // the second one begins after the deadline
  ASSERT_EQ(Submit(*engine, request), absl::OkStatus());
  StepUntilIdle(*engine);
  for (int32_t sample = 0; sample < 2; ++sample) {
    EXPECT_EQ(results_.at({request.ticket, sample}).error, absl::OkStatus());
    EXPECT_EQ(results_.at({request.ticket, sample}).token_ids.size(), 20);
  }
}

TEST_F(EngineDeadlineTest, APromptThatCannotEndInTimeIsRefusedAtItsTurn) {
  const std::unique_ptr<Engine> engine = MakeEngine(none_, Options({.max_running_samples = 1, .max_step_rows = 8}));
  ASSERT_EQ(Submit(*engine, LongPrompt(absl::InfiniteDuration())), absl::OkStatus());
  StepUntilIdle(*engine);  // the engine learns that a step takes seconds
  const uint64_t num_steps = engine->GetStats().num_steps;
  const GenerationRequest request = LongPrompt(absl::Seconds(40));
  ASSERT_EQ(Submit(*engine, request), absl::OkStatus());
  StepUntilIdle(*engine);
  const absl::Status refused = results_.at({request.ticket, 0}).error;
  EXPECT_EQ(base::ReasonOf(refused), "DEADLINE_TOO_SHORT") << refused;
  EXPECT_EQ(engine->GetStats().num_steps, num_steps);
}

// At its turn a request has time for its first token and not for all of its output.
TEST_F(EngineDeadlineTest, WhereOthersWaitARequestThatCannotEndInTimeLeavesThemItsRoom) {
  const std::unique_ptr<Engine> engine = MakeEngine(none_, Options());
  constexpr int32_t kUsualTokens = 64;
  for (int i = 0; i < 8; ++i) {  // the engine learns how long they take
    ASSERT_EQ(Submit(*engine, Due(absl::InfiniteDuration(), kUsualTokens)), absl::OkStatus());
  }
  const absl::Time begin = now_;
  StepUntilIdle(*engine);
  const absl::Duration run = (now_ - begin) / 8;
  const auto result_of = [&](GenerationRequest request, bool others_wait) {
    request.deadline = now_ + run / 2;
    EXPECT_EQ(Submit(*engine, request), absl::OkStatus());
    if (others_wait) {
      EXPECT_EQ(Submit(*engine, Due(absl::InfiniteDuration())), absl::OkStatus());
    }
    StepUntilIdle(*engine);
    return results_.at({request.ticket, 0});
  };
  const auto refused = result_of(Due(absl::Hours(1), kUsualTokens), /*others_wait=*/true);
  EXPECT_EQ(base::ReasonOf(refused.error), "DEADLINE_TOO_SHORT") << refused.error;
  EXPECT_TRUE(refused.token_ids.empty());
  EXPECT_EQ(result_of(Due(absl::Hours(1), kUsualTokens), /*others_wait=*/false).token_ids.size(), kUsualTokens);
  EXPECT_EQ(result_of(Due(absl::Hours(1), kUsualTokens / 4), /*others_wait=*/true).token_ids.size(), kUsualTokens / 4);
}

// The tenant "long" keeps the engine busy, so all requests of "short" meet a line.
TEST_F(EngineDeadlineTest, ATenantIsJudgedByItsOwnOutputs) {
  const std::unique_ptr<Engine> engine = MakeEngine(none_, Options());
  const auto submit = [&](const std::string& tenant, absl::Duration left, int32_t max_tokens) {
    GenerationRequest request = Due(left, max_tokens);
    request.tenant = tenant;
    absl::StatusOr<QueuePlace> place = engine->Reserve({.deadline = request.deadline, .tenant = tenant});
    EXPECT_EQ(engine->Submit(*std::move(place), request), absl::OkStatus());
    return request.ticket;
  };
  const absl::Time begin = now_;
  for (int i = 0; i < 8; ++i) submit("long", absl::InfiniteDuration(), 300);
  StepUntilIdle(*engine);
  const absl::Duration long_run = (now_ - begin) / 8;
  for (int i = 0; i < 12; ++i) {
    submit("long", absl::InfiniteDuration(), 300);
    const Ticket is_short = submit("short", 1.5 * long_run, 8);
    submit("long", absl::InfiniteDuration(), 300);
    StepUntilIdle(*engine);
    EXPECT_EQ((results_.at({is_short, 0}).token_ids.size()), 8) << i << ": " << results_.at({is_short, 0}).error;
  }
  // It does not name its length any more, and the outputs before were short.
  submit("long", absl::InfiniteDuration(), 300);
  const Ticket unnamed = submit("short", 1.5 * long_run, 300);
  submit("long", absl::InfiniteDuration(), 300);
  StepUntilIdle(*engine);
  EXPECT_NE(base::ReasonOf(results_.at({unnamed, 0}).error), "DEADLINE_TOO_SHORT");
}

// Its other samples wait in the line until the first one has computed the prompt.
TEST_F(EngineDeadlineTest, TheSamplesOfARequestDoNotWaitForEachOther) {
  const std::unique_ptr<Engine> engine = MakeEngine(none_, Options({.max_running_samples = 8}));
  for (int i = 0; i < 8; ++i) ASSERT_EQ(Submit(*engine, Due(absl::InfiniteDuration(), 64)), absl::OkStatus());
  const absl::Time begin = now_;
  StepUntilIdle(*engine);
  const absl::Duration run = now_ - begin;
  for (int i = 0; i < 4; ++i) {  // one in 16 would go on in any case
    GenerationRequest request = Due(run / 2, 64);
    request.num_samples = 3;
    ASSERT_EQ(Submit(*engine, request), absl::OkStatus());
    StepUntilIdle(*engine);
    EXPECT_EQ((results_.at({request.ticket, 0}).token_ids.size()), 64) << results_.at({request.ticket, 0}).error;
  }
}

TEST_F(EngineDeadlineTest, AfterASlowTimeRequestsAreServedAgain) {
  const std::unique_ptr<Engine> engine = MakeEngine(none_, Options({.max_running_samples = 1, .max_step_rows = 8}));
  tick_ = absl::Seconds(1000);
  ASSERT_EQ(Submit(*engine, LongPrompt(absl::InfiniteDuration())), absl::OkStatus());
  StepUntilIdle(*engine);
  tick_ = absl::Seconds(1);
  std::vector<bool> served;
  for (int i = 0; i < 20; ++i) {
    const GenerationRequest request = LongPrompt(absl::Hours(5));  // ten times what it needs
    if (Submit(*engine, request).ok()) StepUntilIdle(*engine);
    served.push_back(!results_[{request.ticket, 0}].token_ids.empty());
  }
  EXPECT_FALSE(served.front());
  EXPECT_TRUE(served.back()) << "one request was tried, and it corrected the forecast";
}

TEST_F(EngineDeadlineTest, ASampleThatBeginsLaterDoesNotRefuseTheRequest) {
  const std::unique_ptr<Engine> engine =
      MakeEngine(none_, Options({.max_running_samples = 2, .max_step_rows = 8, .enable_prefix_cache = false}));
  GenerationRequest other = LongPrompt(absl::InfiniteDuration());
  other.stop.max_tokens = 64;
  ASSERT_EQ(Submit(*engine, other), absl::OkStatus());
  while (engine->GetStats().num_generated_tokens == 0) engine->Step();
  GenerationRequest request = LongPrompt(absl::Seconds(300));
  request.num_samples = 2;  // the second one begins when the other request ends, long after the deadline
  ASSERT_EQ(Submit(*engine, request), absl::OkStatus());
  StepUntilIdle(*engine);
  EXPECT_EQ(results_.at({request.ticket, 0}).error, absl::OkStatus());
}

TEST_F(EngineDeadlineTest, ALineThatIsTooLongRefusesAtOnceAndLetsHigherPrioritiesPass) {
  const std::unique_ptr<Engine> engine =
      MakeEngine(none_, Options({.priority_aging = absl::Hours(24), .max_running_samples = 1}));
  for (int i = 0; i < 200; ++i) ASSERT_EQ(Submit(*engine, Due(absl::InfiniteDuration())), absl::OkStatus());
  for (int i = 0; i < 100; ++i) engine->Step();
  ASSERT_EQ(engine->GetStats().num_queued, 100);
  const absl::Duration for_a_few = absl::Seconds(60);
  const absl::Status refused = Submit(*engine, Due(for_a_few));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(refused), "DEADLINE_TOO_SHORT") << refused;
  EXPECT_FALSE(base::IsPassing(refused));
  EXPECT_EQ(engine->GetStats().num_queued, 100);
  EXPECT_EQ(Submit(*engine, Due(absl::Hours(2))), absl::OkStatus());
  GenerationRequest urgent = Due(for_a_few);
  urgent.priority = 100;
  EXPECT_EQ(Submit(*engine, urgent), absl::OkStatus());
  engine->Step();
  EXPECT_EQ(results_.at({urgent.ticket, 0}).token_ids.size(), 1);
  StepUntilIdle(*engine);
}

}  // namespace
}  // namespace foretoken::verifier
