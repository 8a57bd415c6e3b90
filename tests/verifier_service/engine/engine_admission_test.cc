// SPDX-License-Identifier: Apache-2.0
// Admission to the engine: bounds on waiting requests, fairness, preemption and the prefix cache. If this test fails, a
// request waits forever, a low priority overtakes a high one, or the queue grows without a bound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::verifier {
namespace {

using testing::EngineOptions;
using ::testing::HasSubstr;
using testing::InProcessProposers;
using testing::Results;

class EngineAdmissionTest : public testing::EngineFixture {
 protected:
  static absl::Status Submit(Engine& engine, const GenerationRequest& request) {
    absl::StatusOr<QueuePlace> place = engine.Reserve();
    return place.ok() ? engine.Submit(*std::move(place), request) : place.status();
  }
  static void StepUntilIdle(Engine& engine) {
    while (engine.Step()) continue;
  }
  // Makes a request whose prompt has this many tokens, counted up from first_id.
  GenerationRequest LongPrompt(int32_t first_id, size_t num_tokens, int32_t max_tokens) {
    GenerationRequest request = Request("x", 0, max_tokens);
    request.prompt.clear();
    for (size_t i = 0; i < num_tokens; ++i) request.prompt.push_back(first_id + static_cast<int32_t>(i));
    request.stop.ignore_eos = true;
    return request;
  }
  size_t NumTokens(const GenerationRequest& request) {
    const auto result = results_.find({request.ticket, 0});
    return result == results_.end() ? 0 : result->second.token_ids.size();
  }

  InProcessProposers none_;
};

// Nothing more is known of a request that is not parsed.
TEST_F(EngineAdmissionTest, TheBytesOfAnArrivalCountUntilItsTokensAreKnown) {
  const std::unique_ptr<Engine> engine = MakeEngine(none_, {.config = {.max_queued_tokens = 100}});
  const absl::StatusOr<QueuePlace> first = engine->Reserve({.num_bytes = 4 * 60});
  ASSERT_EQ(first.status(), absl::OkStatus());
  EXPECT_EQ(engine->Reserve({.num_bytes = 4 * 41}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine->Reserve({.num_bytes = 4 * 40}).status(), absl::OkStatus());
}

TEST_F(EngineAdmissionTest, SamplesThatWaitAreBounded) {
  const std::unique_ptr<Engine> engine =
      MakeEngine(none_, {.config = {.max_queued_samples = 8, .max_running_samples = 1}});
  GenerationRequest large = Request("import os\n", 0, 3), other = Request("import sys\n", 0, 3);
  large.num_samples = 64;  // more than the bound, but no other request waits
  ASSERT_EQ(Submit(*engine, large), absl::OkStatus());
  const absl::Status refused = Submit(*engine, other);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("max_queued_samples is 8, 64 wait, and the request has 1"));
  engine->Step();
  EXPECT_EQ(engine->GetStats().num_queued, 1);
  EXPECT_EQ(engine->GetStats().num_queued_samples, 63);
  StepUntilIdle(*engine);
  EXPECT_EQ(engine->GetStats().num_queued_samples, 0);
  EXPECT_EQ(Submit(*engine, other), absl::OkStatus());
  StepUntilIdle(*engine);
  EXPECT_EQ(results_.size(), 65);
}

TEST_F(EngineAdmissionTest, TokensThatWaitingRequestsHoldAreBounded) {
  const std::unique_ptr<Engine> engine =
      MakeEngine(none_, {.config = {.max_queued_tokens = 200, .max_running_samples = 1}});
  ASSERT_EQ(Submit(*engine, LongPrompt(0, 150, 3)), absl::OkStatus());
  GenerationRequest predicted = LongPrompt(0, 10, 3), listed = LongPrompt(0, 10, 3), biased = LongPrompt(0, 10, 3);
  predicted.speculation.prediction = Prediction(std::vector<int32_t>(41, 7), /*max_tokens=*/1024);
  listed.stop.stop_token_ids.assign(20, 4000);
  listed.allowed_token_ids.assign(20, 5);
  listed.banned_token_ids.assign(1, 6);
  biased.logit_bias.resize(41);
  for (const GenerationRequest& request : {LongPrompt(0, 51, 3), predicted, listed, biased}) {
    const absl::Status refused = Submit(*engine, request);
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.message(), HasSubstr("max_queued_tokens is 200, 150 wait, and the request has 51"));
  }
  EXPECT_EQ(Submit(*engine, LongPrompt(0, 50, 3)), absl::OkStatus());
  EXPECT_EQ(engine->GetStats().num_queued_tokens, 200);
  StepUntilIdle(*engine);
  EXPECT_EQ(engine->GetStats().num_queued_tokens, 0);
  EXPECT_EQ(results_.size(), 2);
}

TEST_F(EngineAdmissionTest, AStreamOfHighPriorityDelaysALowOneForALimitedTime) {
  const std::unique_ptr<Engine> engine = MakeEngine(
      none_,
      {.config = {.priority_aging = absl::Milliseconds(20), .max_running_samples = 1}, .now = testing::EvenClock()});
  const GenerationRequest low = Request("x = 1\n", 0, 1);
  ASSERT_EQ(Submit(*engine, low), absl::OkStatus());
  int num_before = 0;
  for (; num_before < 1000 && NumTokens(low) == 0; ++num_before) {
    GenerationRequest high = Request("x = 2\n", 0, 1);
    high.priority = 5;
    ASSERT_EQ(Submit(*engine, high), absl::OkStatus());
    engine->Step();
  }
  EXPECT_GT(num_before, 5) << "the priority had no effect";
  EXPECT_LT(num_before, 100);
  StepUntilIdle(*engine);
}

TEST_F(EngineAdmissionTest, RequestsTakeTurnsForAnyNumberOfSamples) {
  const std::unique_ptr<Engine> engine = MakeEngine(none_, {.config = {.max_running_samples = 2}});
  GenerationRequest many = Request("x = 1\n", 0.8f, 5);
  many.num_samples = 64;
  many.stop.ignore_eos = true;
  const GenerationRequest one = Request("x = 2\n", 0, 5);
  ASSERT_EQ(Submit(*engine, many), absl::OkStatus());
  for (int i = 0; i < 3; ++i) engine->Step();
  ASSERT_EQ(Submit(*engine, one), absl::OkStatus());
  while (completions_.find({one.ticket, 0}) == completions_.end()) engine->Step();
  EXPECT_LE(completions_.size(), 6) << "more samples finished first than were running before";
  StepUntilIdle(*engine);
  EXPECT_EQ(completions_.size(), 65);
}

TEST_F(EngineAdmissionTest, AHigherPriorityIsNeverPreemptedForALowerOne) {
  GenerationRequest low = LongPrompt(100, 30, 90), high = LongPrompt(500, 30, 90);
  high.priority = 1;
  const EngineOptions roomy, tight = {.num_blocks = 9};
  const Results truth = Generate({low, high}, none_, roomy);
  const std::unique_ptr<Engine> engine = MakeEngine(none_, tight);
  ASSERT_EQ(Submit(*engine, low), absl::OkStatus());
  engine->Step();  // the low priority runs, and is older
  ASSERT_EQ(Submit(*engine, high), absl::OkStatus());
  engine->Step();
  for (size_t num_tokens = NumTokens(high); num_tokens < 90; ++num_tokens) {
    EXPECT_EQ(NumTokens(high), num_tokens);
    engine->Step();
  }
  EXPECT_GT(engine->GetStats().num_preemptions, 0);
  EXPECT_EQ(engine->GetStats().num_preempted, 1);
  StepUntilIdle(*engine);
  EXPECT_EQ(engine->GetStats().num_preempted, 0);
  EXPECT_EQ(results_, truth);
}

TEST_F(EngineAdmissionTest, ARequestThatDoesNotFitLeavesThePrefixCacheAlone) {
  EngineOptions options = {.config = {.max_tree_nodes = 0}, .num_blocks = 32};
  const std::unique_ptr<Engine> engine = MakeEngine(none_, options);
  const GenerationRequest cached = LongPrompt(0, 385, 1);  // 24 full blocks
  ASSERT_EQ(Submit(*engine, cached), absl::OkStatus());
  StepUntilIdle(*engine);
  ASSERT_EQ(engine->GetStats().num_cached_blocks, 24);
  const GenerationRequest running = LongPrompt(1000, 90, 20);  // 6 blocks, and later 7
  const GenerationRequest waiting = LongPrompt(2000, 440, 1);  // 28 blocks
  ASSERT_EQ(Submit(*engine, running), absl::OkStatus());
  engine->Step();
  ASSERT_EQ(Submit(*engine, waiting), absl::OkStatus());
  for (int i = 0; i < 5; ++i) engine->Step();
  EXPECT_EQ(engine->GetStats().num_queued, 1);
  EXPECT_EQ(engine->GetStats().num_cached_blocks, 24);
  StepUntilIdle(*engine);
  EXPECT_EQ(NumTokens(waiting), 1);
}

TEST_F(EngineAdmissionTest, ARequestDoesNotBeginIfARunningOneNeedsTheRoom) {
  const EngineOptions options = {.config = {.max_tree_nodes = 0}, .num_blocks = 32};
  const std::unique_ptr<Engine> engine = MakeEngine(none_, options);
  const GenerationRequest running = LongPrompt(1000, 93, 100);  // 6 blocks, and 7 at 97 tokens
  ASSERT_EQ(Submit(*engine, running), absl::OkStatus());
  while (NumTokens(running) < 4) engine->Step();
  // The free blocks suffice for this request now, but the running one needs them in the next step.
  ASSERT_EQ(Submit(*engine, LongPrompt(2000, 416, 1)), absl::OkStatus());  // 26 blocks
  engine->Step();
  EXPECT_EQ(engine->GetStats().num_preemptions, 0);
  EXPECT_EQ(engine->GetStats().num_running, 1);
  StepUntilIdle(*engine);
}

TEST_F(EngineAdmissionTest, AnAbortedRequestLeavesTheQueueWithAllItsSamples) {
  const std::unique_ptr<Engine> engine = MakeEngine(none_, {.config = {.max_running_samples = 1}});
  GenerationRequest running = Request("x = 1\n", 0, 500), waiting = Request("x = 2\n", 0, 500);
  waiting.num_samples = 3;
  ASSERT_EQ(Submit(*engine, running), absl::OkStatus());
  engine->Step();
  ASSERT_EQ(Submit(*engine, waiting), absl::OkStatus());
  engine->Step();
  EXPECT_EQ(engine->GetStats().num_queued_samples, 3);
  engine->Abort(waiting.ticket);
  engine->Step();
  EXPECT_EQ(engine->GetStats().num_queued, 0);
  EXPECT_EQ(engine->GetStats().num_queued_samples, 0);
  for (int32_t sample = 0; sample < 3; ++sample) {
    const auto completion = completions_.find({waiting.ticket, sample});
    ASSERT_NE(completion, completions_.end());
    EXPECT_EQ(completion->second.finish_reason, FinishReason::kAbort);
    EXPECT_EQ(completion->second.num_prompt_tokens, waiting.prompt.size());
  }
  engine->Abort(waiting.ticket);  // a second time; the engine no longer knows it
  engine->Abort(running.ticket);
  StepUntilIdle(*engine);
}

}  // namespace
}  // namespace foretoken::verifier
