// SPDX-License-Identifier: Apache-2.0
// The engine on the demo model, step by step: what a client gets does not depend on proposers, batch or faults (E1,
// E2).
#include "verifier_service/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/testing/engine_fixture.h"
#include "tests/testing/guesses.h"
#include "tests/testing/guessing_proposers.h"

namespace foretoken::verifier {
namespace {

using testing::EngineOptions;
using testing::Guess;
using testing::GuessingProposers;
using ::testing::HasSubstr;
using testing::Random;
using testing::Result;
using testing::Results;

class EngineTest : public testing::EngineFixture {
 protected:
  std::vector<GenerationRequest> MixedRequests() {
    next_ticket_ = 1;
    std::vector<GenerationRequest> requests = {
        Request("def read_config(path):\n", 0), Request("import os\nimport sys\n", 0.8f),
        Request("class Stack:\n    def push(self, item):\n", 0.8f),
        Request("for i in range(10):\n    print(i)\n", 1.2f), Request("x = 1\nx = 1\nx = 1\nx = 1\n", 0, 60)};
    requests[1].sampling.top_p = 0.9f;
    requests[1].output.num_logprobs = 3;
    requests[2].sampling.top_k = 20;
    requests[2].num_samples = 3;
    requests[3].sampling.repetition_penalty = 1.3f;
    requests[3].sampling.frequency_penalty = 0.5f;
    requests[3].sampling.min_p = 0.02f;
    requests[3].logit_bias = {{.token_id = 258, .bias = -2}, {.token_id = 11, .bias = 1.5f}};
    requests[4].output.num_prompt_logprobs = 2;
    requests[4].output.num_logprobs = 0;
    return requests;
  }

  static Guess Oracle(const Results& truth, const std::vector<GenerationRequest>& requests) {
    return testing::Oracle(testing::WholeTexts(truth, requests));
  }
};

TEST_F(EngineTest, TokensDoNotDependOnProposers) {
  const std::vector<GenerationRequest> requests = MixedRequests();
  GuessingProposers none;
  const Results truth = Generate(requests, none);
  ASSERT_EQ(truth.size(), 7);
  EXPECT_EQ(truth.at({5, 0}).logprobs.size(), truth.at({5, 0}).token_ids.size());
  EXPECT_EQ(truth.at({5, 0}).prompt_logprobs.size(), requests[4].prompt.size() - 1);
  EXPECT_NE(truth.at({3, 0}).token_ids, truth.at({3, 1}).token_ids);

  GuessingProposers oracle({{"oracle", Oracle(truth, requests)}});
  EXPECT_EQ(Generate(requests, oracle), truth);
  EXPECT_GT(stats_.proposers[0].num_accepted, 100);
  const uint64_t num_oracle_steps = stats_.num_steps;

  GuessingProposers random({{"random", Random(1)}});
  EXPECT_EQ(Generate(requests, random), truth);
  EXPECT_GT(stats_.num_steps, num_oracle_steps);

  GuessingProposers several({{"random", Random(2)}, {"oracle", Oracle(truth, requests)}, {"other", Random(3)}});
  EXPECT_EQ(Generate(requests, several), truth);
  EXPECT_GT(stats_.proposers[1].num_accepted, 100);

  GuessingProposers late({{"oracle", Oracle(truth, requests)}});
  late.set_delay(1);
  EXPECT_EQ(Generate(requests, late), truth);
  EXPECT_GT(stats_.proposers[0].num_accepted, 0);

  GuessingProposers mortal({{"oracle", Oracle(truth, requests)}});
  EXPECT_EQ(Generate(requests, mortal, {}, [&](int step) { mortal.set_dead(step % 10 < 5); }), truth);
  EXPECT_GT(stats_.proposers[0].num_accepted, 0);
}

TEST_F(EngineTest, TokensDoNotDependOnTheBatch) {
  const std::vector<GenerationRequest> requests = MixedRequests();
  GuessingProposers none;
  const Results truth = Generate(requests, none);
  for (const GenerationRequest& request : requests) {
    for (const auto& [key, result] : Generate({request}, none)) EXPECT_EQ(result, truth.at(key));
  }
  EXPECT_EQ(Generate(requests, none, {.config = {.max_running_samples = 2, .max_step_rows = 5}}), truth);
  EXPECT_EQ(Generate(requests, none, {.config = {.enable_prefix_cache = false}}), truth);
}

TEST_F(EngineTest, TokensDoNotDependOnPreemption) {
  const std::vector<GenerationRequest> requests = MixedRequests();
  GuessingProposers none;
  const Results truth = Generate(requests, none);
  GuessingProposers oracle({{"oracle", Oracle(truth, requests)}});
  for (const bool enable_prefix_cache : {true, false}) {
    const EngineOptions tight = {.config = {.enable_prefix_cache = enable_prefix_cache}, .num_blocks = 9};
    EXPECT_EQ(Generate(requests, oracle, tight), truth);
    EXPECT_GT(stats_.num_preemptions, 0);
  }
}

TEST_F(EngineTest, AWarmPrefixCacheSavesThePromptAndChangesNothing) {
  GenerationRequest first = Request("import os\nimport sys\nimport argparse\n\n\ndef main():\n    parser = ", 0.8f);
  GenerationRequest second = first;
  second.ticket = next_ticket_++;
  second.request_id = "second";
  GuessingProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {});
  for (const GenerationRequest& request : {first, second}) {
    ASSERT_EQ(engine->Submit(engine->Reserve().value(), request), absl::OkStatus());
    while (engine->Step()) continue;
  }
  EXPECT_EQ(results_.at({first.ticket, 0}), results_.at({second.ticket, 0}));
  EXPECT_EQ(completions_.at({first.ticket, 0}).num_cached_tokens, 0);
  EXPECT_EQ(completions_.at({second.ticket, 0}).num_cached_tokens, (first.prompt.size() - 1) / 16 * 16);
}

TEST_F(EngineTest, OtherTenantsFindNothingInThePrefixCache) {
  GenerationRequest first = Request("import os\nimport sys\nimport argparse\n\n\ndef main():\n    parser = ", 0);
  GenerationRequest second = first;
  second.ticket = next_ticket_++;
  second.request_id = "second";
  second.tenant = "other";
  GuessingProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {});
  for (const GenerationRequest& request : {first, second}) {
    ASSERT_EQ(engine->Submit(engine->Reserve().value(), request), absl::OkStatus());
    while (engine->Step()) continue;
  }
  EXPECT_EQ(completions_.at({second.ticket, 0}).num_cached_tokens, 0);
}

TEST_F(EngineTest, StopsInsideAnAcceptedPathWhereItWouldHaveStoppedWithoutOne) {
  GuessingProposers none;
  GenerationRequest request = Request("x = 1\nx = 1\nx = 1\nx = 1\n", 0, 60);
  const Results unstopped = Generate({request}, none);
  const std::string stop = unstopped.begin()->second.text.substr(20, 9);  // more than one token
  request.stop.stop_strings = {stop};
  const Results truth = Generate({request}, none);
  EXPECT_EQ(truth.begin()->second.finish_reason, FinishReason::kStop);
  EXPECT_EQ(truth.begin()->second.matched_stop_string, stop);
  EXPECT_THAT(truth.begin()->second.text, ::testing::Not(HasSubstr(stop)));
  GuessingProposers oracle({{"oracle", Oracle(unstopped, {request})}});
  EXPECT_EQ(Generate({request}, oracle), truth);

  request.stop.stop_strings.clear();
  request.stop.stop_token_ids = {unstopped.begin()->second.token_ids[7]};
  const Results stopped = Generate({request}, none);
  EXPECT_EQ(stopped.begin()->second.token_ids.back(), request.stop.stop_token_ids[0]);
  EXPECT_EQ(Generate({request}, oracle), stopped);
  request.stop.min_tokens = 20;
  const Results later = Generate({request}, none);
  EXPECT_GT(later.begin()->second.token_ids.size(), 20);
  EXPECT_EQ(Generate({request}, oracle), later);
}

TEST_F(EngineTest, MaxTokensHoldsWithADeepTree) {
  GuessingProposers none;
  GenerationRequest request = Request("x = 1\nx = 1\nx = 1\nx = 1\n", 0, 40);
  const Results longer = Generate({request}, none);
  request.stop.max_tokens = 13;
  GuessingProposers oracle({{"oracle", Oracle(longer, {request})}});
  const Result result = Generate({request}, oracle).begin()->second;
  EXPECT_EQ(result.token_ids.size(), 13);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_GT(stats_.proposers[0].num_accepted, 0);
}

TEST_F(EngineTest, FillsTheContextToItsLastToken) {
  GuessingProposers random({{"random", Random(1)}});
  GenerationRequest request = Request("x = 1\n", 0.8f);
  request.stop.ignore_eos = true;
  request.stop.max_tokens = 16 * 16 - static_cast<int32_t>(request.prompt.size());
  const Result result = Generate({request}, random, {.num_blocks = 16}).begin()->second;
  EXPECT_EQ(result.token_ids.size(), request.stop.max_tokens);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
}

TEST_F(EngineTest, RefusesWhatCanNeverFit) {
  GuessingProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {.num_blocks = 4});
  EXPECT_EQ(engine->max_context_tokens(), 64);
  GenerationRequest request = Request("x = 1\n", 0, 64);
  EXPECT_EQ(engine->Submit(engine->Reserve().value(), request).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EngineTest, AFullQueueRefusesAtOnceAndRecovers) {
  GuessingProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {.config = {.max_queued_requests = 2}});
  {
    const QueuePlace first = engine->Reserve().value();
    const QueuePlace second = engine->Reserve().value();
    EXPECT_EQ(engine->Reserve().status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(engine->GetStats().num_queued, 2);
  }
  EXPECT_TRUE(engine->Reserve().ok());
  engine->Drain();
  EXPECT_EQ(engine->Reserve().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineTest, ARequestIdIsUniqueWhileItRuns) {
  GuessingProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {});
  GenerationRequest request = Request("x = 1\n", 0, 3);
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), request), absl::OkStatus());
  request.ticket = next_ticket_++;
  EXPECT_EQ(engine->Submit(engine->Reserve().value(), request).code(), absl::StatusCode::kAlreadyExists);
  while (engine->Step()) continue;
  EXPECT_EQ(engine->Submit(engine->Reserve().value(), request), absl::OkStatus());
  while (engine->Step()) continue;
  EXPECT_EQ(results_.size(), 2);
}

TEST_F(EngineTest, AnAbortFreesEverythingWithinOneStep) {
  GuessingProposers random({{"random", Random(1)}});
  const std::unique_ptr<Engine> engine = MakeEngine(random, {});
  GenerationRequest running = Request("x = 1\n", 0.8f, 500);
  running.num_samples = 2;
  const GenerationRequest other = Request("import os\n", 0, 60);
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), running), absl::OkStatus());
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), other), absl::OkStatus());
  for (int i = 0; i < 5; ++i) engine->Step();
  EXPECT_EQ(random.num_open(), 3);
  EXPECT_TRUE(engine->Abort(running.request_id));
  engine->Step();
  EXPECT_EQ(random.num_open(), 1);
  EXPECT_EQ(engine->GetStats().num_running, 1);
  EXPECT_EQ(results_.at({running.ticket, 0}).finish_reason, FinishReason::kAbort);
  EXPECT_EQ(results_.at({running.ticket, 1}).finish_reason, FinishReason::kAbort);
  EXPECT_FALSE(engine->Abort(running.request_id));
  while (engine->Step()) continue;
  EXPECT_EQ(results_.at({other.ticket, 0}).token_ids.size(), 60);
}

TEST_F(EngineTest, ASequenceOfARequestWithoutSpeculationIsNeverShownToProposers) {
  GuessingProposers random({{"random", Random(1)}});
  GenerationRequest off = Request("x = 1\n", 0, 20);
  off.speculation.enabled = false;
  GenerationRequest other_proposer = Request("x = 1\n", 0, 20);
  other_proposer.speculation.proposers = {"missing"};
  Generate({off, other_proposer}, random, {}, [&](int) { EXPECT_EQ(random.num_open(), 0); });
  EXPECT_EQ(stats_.proposers[0].num_proposed, 0);
}

TEST_F(EngineTest, NothingToDrawEndsThatRequestAlone) {
  GuessingProposers none;
  GenerationRequest empty = Request("x = 1\n", 1, 20);
  for (int32_t id = 0; id < 4096; ++id) empty.stop.stop_token_ids.push_back(id);
  empty.stop.min_tokens = 5;  // until then none of them may be drawn: nothing is left
  empty.num_samples = 2;
  const GenerationRequest other = Request("import os\n", 0, 20);
  const Results results = Generate({empty, other}, none);
  EXPECT_EQ(results.at({empty.ticket, 0}).error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(results.at({other.ticket, 0}).token_ids.size(), 20);
}

TEST_F(EngineTest, HigherPriorityGoesFirst) {
  GuessingProposers none;
  GenerationRequest low = Request("x = 1\n", 0, 5);
  GenerationRequest high = Request("x = 2\n", 0, 5);
  high.priority = 1;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {.config = {.max_running_samples = 1, .max_step_rows = 64}});
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), low), absl::OkStatus());
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), high), absl::OkStatus());
  while (results_.empty()) engine->Step();
  EXPECT_EQ(results_.begin()->first.first, high.ticket);
  while (engine->Step()) continue;
}

TEST_F(EngineTest, StoppingTheThreadEndsWhatRuns) {
  GuessingProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {});
  engine->Start();
  const GenerationRequest request = Request("x = 1\n", 0.8f, 900);
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), request), absl::OkStatus());
  engine->Stop();
  EXPECT_EQ(results_.at({request.ticket, 0}).finish_reason, FinishReason::kAbort);
}

}  // namespace
}  // namespace foretoken::verifier
