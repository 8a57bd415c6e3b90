// SPDX-License-Identifier: Apache-2.0
// The engine on the demo model, step by step. If this test fails, a client's tokens depend on proposers, batch or
// faults (E1, E2), or a request does not begin, abort or fail as it should.
#include "verifier_service/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/fakes/spoiled_backend.h"

namespace foretoken::verifier {
namespace {

using ::testing::Contains;
using testing::EngineOptions;
using testing::Guess;
using ::testing::HasSubstr;
using testing::InProcessProposers;
using ::testing::Not;
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

TEST_F(EngineTest, TheReportOfAPromptComesFirstWithAndWithoutThePrefixCache) {
  GenerationRequest request = Request("def read_config(path):\n", 0.8f, 4);
  while (request.prompt.size() < 200) {  // a reported prompt takes several steps
    request.prompt.push_back(request.prompt[request.prompt.size() % 3]);
  }
  request.num_samples = 2;
  request.output.num_prompt_logprobs = 1;
  InProcessProposers none;
  for (const bool enable_prefix_cache : {true, false}) {
    const Results results = Generate({request}, none, {.config = {.enable_prefix_cache = enable_prefix_cache}});
    EXPECT_EQ(results.at({request.ticket, 0}).prompt_logprobs.size(), request.prompt.size() - 1);
    EXPECT_FALSE(results.at({request.ticket, 1}).token_ids.empty());
  }
}

// One step computes the prompt, and the second sample ends at its first token.
TEST_F(EngineTest, TheReportOfAShortPromptComesBeforeAnotherSamplesEnd) {
  GenerationRequest request = Request("def", 1.0f, 4);
  request.prompt.resize(1);
  request.num_samples = 2;
  request.output.echo = true;
  InProcessProposers none;
  const Results whole = Generate({request}, none);
  const int32_t stop = whole.at({request.ticket, 1}).token_ids.front();
  ASSERT_THAT(whole.at({request.ticket, 0}).token_ids, Not(Contains(stop)));
  request.stop.stop_token_ids = {stop};
  for (const bool enable_prefix_cache : {true, false}) {
    const Results results = Generate({request}, none, {.config = {.enable_prefix_cache = enable_prefix_cache}});
    EXPECT_EQ(results.at({request.ticket, 1}).matched_stop_token_id, stop);
  }
}

TEST_F(EngineTest, TokensDoNotDependOnProposers) {
  const std::vector<GenerationRequest> requests = MixedRequests();
  InProcessProposers none;
  const Results truth = Generate(requests, none);
  ASSERT_EQ(truth.size(), 7);
  EXPECT_EQ(truth.at({5, 0}).logprobs.size(), truth.at({5, 0}).token_ids.size());
  EXPECT_EQ(truth.at({5, 0}).prompt_logprobs.size(), requests[4].prompt.size() - 1);
  EXPECT_NE(truth.at({3, 0}).token_ids, truth.at({3, 1}).token_ids);

  InProcessProposers oracle({{"oracle", Oracle(truth, requests)}});
  EXPECT_EQ(Generate(requests, oracle), truth);
  EXPECT_GT(stats_.proposers[0].num_accepted, 100);
  const uint64_t num_oracle_steps = stats_.num_steps;

  InProcessProposers random({{"random", Random(1)}});
  EXPECT_EQ(Generate(requests, random), truth);
  EXPECT_GT(stats_.num_steps, num_oracle_steps);

  InProcessProposers several({{"random", Random(2)}, {"oracle", Oracle(truth, requests)}, {"other", Random(3)}});
  EXPECT_EQ(Generate(requests, several), truth);
  EXPECT_GT(stats_.proposers[1].num_accepted, 100);

  InProcessProposers late({{"oracle", Oracle(truth, requests)}});
  late.set_delay(1);
  EXPECT_EQ(Generate(requests, late), truth);
  EXPECT_GT(stats_.proposers[0].num_accepted, 0);

  InProcessProposers mortal({{"oracle", Oracle(truth, requests)}});
  EXPECT_EQ(Generate(requests, mortal, {}, [&](int step) { mortal.set_dead(step % 10 < 5); }), truth);
  EXPECT_GT(stats_.proposers[0].num_accepted, 0);
}

TEST_F(EngineTest, StopsAtATreeThatNoCheckedProposalCanBe) {
  const std::vector<GenerationRequest> requests = {Request("x = 1\n", 0, 8)};
  InProcessProposers broken({{"broken", [](std::span<const int32_t>, int32_t) {
                                return speculation::TokenTree{.nodes = {{.parent = 1}, {.token_id = 1}}};
                              }}});
  EXPECT_DEATH(Generate(requests, broken), "HasParentsFirst");
}

TEST_F(EngineTest, TokensDoNotDependOnTheBatch) {
  const std::vector<GenerationRequest> requests = MixedRequests();
  InProcessProposers none;
  const Results truth = Generate(requests, none);
  for (const GenerationRequest& request : requests) {
    for (const auto& [key, result] : Generate({request}, none)) EXPECT_EQ(result, truth.at(key));
  }
  EXPECT_EQ(Generate(requests, none, {.config = {.max_running_samples = 2, .max_step_rows = 5}}), truth);
  EXPECT_EQ(Generate(requests, none, {.config = {.enable_prefix_cache = false}}), truth);
}

TEST_F(EngineTest, TokensDoNotDependOnPreemption) {
  const std::vector<GenerationRequest> requests = MixedRequests();
  InProcessProposers none;
  const Results truth = Generate(requests, none);
  InProcessProposers oracle({{"oracle", Oracle(truth, requests)}});
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
  InProcessProposers none;
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
  InProcessProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {});
  for (const GenerationRequest& request : {first, second}) {
    ASSERT_EQ(engine->Submit(engine->Reserve().value(), request), absl::OkStatus());
    while (engine->Step()) continue;
  }
  EXPECT_EQ(completions_.at({second.ticket, 0}).num_cached_tokens, 0);
}

TEST_F(EngineTest, RefusesARequestThatCanNeverFit) {
  InProcessProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {.num_blocks = 4});
  EXPECT_EQ(engine->max_context_tokens(), 64);
  GenerationRequest request = Request("x = 1\n", 0, 64);
  EXPECT_EQ(engine->Submit(engine->Reserve().value(), request).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EngineTest, AFullQueueRefusesAtOnceAndRecovers) {
  InProcessProposers none;
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

TEST_F(EngineTest, AnAbortFreesEverythingWithinOneStep) {
  InProcessProposers random({{"random", Random(1)}});
  const std::unique_ptr<Engine> engine = MakeEngine(random, {});
  GenerationRequest running = Request("x = 1\n", 0.8f, 500);
  running.num_samples = 2;
  const GenerationRequest other = Request("import os\n", 0, 60);
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), running), absl::OkStatus());
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), other), absl::OkStatus());
  for (int i = 0; i < 5; ++i) engine->Step();
  EXPECT_EQ(random.num_open(), 3);
  engine->Abort(running.ticket);
  engine->Step();
  EXPECT_EQ(random.num_open(), 1);
  EXPECT_EQ(engine->GetStats().num_running, 1);
  EXPECT_EQ(results_.at({running.ticket, 0}).finish_reason, FinishReason::kAbort);
  EXPECT_EQ(results_.at({running.ticket, 1}).finish_reason, FinishReason::kAbort);
  engine->Abort(running.ticket);  // a second time, without effect
  while (engine->Step()) continue;
  EXPECT_EQ(results_.at({other.ticket, 0}).token_ids.size(), 60);
}

TEST_F(EngineTest, ASequenceOfARequestWithoutSpeculationIsNeverShownToProposers) {
  InProcessProposers random({{"random", Random(1)}});
  GenerationRequest off = Request("x = 1\n", 0, 20);
  off.speculation.mode = SpeculationMode::kOff;
  GenerationRequest other_proposer = Request("x = 1\n", 0, 20);
  other_proposer.speculation.proposers = {"missing"};
  Generate({off, other_proposer}, random, {}, [&](int) { EXPECT_EQ(random.num_open(), 0); });
  EXPECT_EQ(stats_.proposers[0].num_proposed, 0);
}

// The demo model on a backend that spoils the rows of one seed.
class SpoiledModel {
 public:
  explicit SpoiledModel(const std::string& directory)
      : backend_(kernels::MakeBackend({.num_threads = 1}).backend), config_(model::LoadModelConfig(directory).value()) {
    const weights::Checkpoint checkpoint = weights::Checkpoint::Open(directory).value();
    model::WeightReader reader({});
    transformer_ = std::make_unique<model::Transformer>(
        config_, model::LoadWeights(config_, checkpoint, backend_, reader).value(), backend_,
        model::TransformerOptions{.max_rows = 512, .max_logit_rows = 512, .max_positions = 1024});
  }
  testing::SpoiledBackend& backend() { return backend_; }
  model::Transformer* transformer() { return transformer_.get(); }

 private:
  testing::SpoiledBackend backend_;
  model::ModelConfig config_;
  std::unique_ptr<model::Transformer> transformer_;
};

TEST_F(EngineTest, ASpoiledRowEndsOnlyItsRequestAfterTheTokensBeforeIt) {
  SpoiledModel spoiled(testing::SourcePath("deploy/demo/target"));
  const std::vector<GenerationRequest> requests = MixedRequests();
  InProcessProposers none;
  const Results whole = Generate(requests, none);
  Use(*spoiled.transformer());
  InProcessProposers oracle({{"oracle", Oracle(whole, requests)}});
  const GenerationRequest& victim = requests[4];
  constexpr size_t kNumBefore = 17;
  for (const float value :
       {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    spoiled.backend().Spoil(
        {.seed = victim.sampling.seed, .t = static_cast<uint32_t>(victim.prompt.size() + kNumBefore), .value = value});
    for (InProcessProposers* const proposers : {&none, &oracle}) {
      Results results = Generate(requests, *proposers);
      const Result& failed = results.at({victim.ticket, 0});
      const bool is_finite = std::isinf(value) && value < 0;
      EXPECT_EQ(failed.error.code(), is_finite ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal);
      EXPECT_THAT(failed.error.message(), HasSubstr(is_finite ? "leave no token" : "logits are not finite"));
      EXPECT_FALSE(failed.finish_reason.has_value());
      const std::vector<int32_t>& ids = whole.at({victim.ticket, 0}).token_ids;
      EXPECT_EQ(failed.token_ids, std::vector<int32_t>(ids.begin(), ids.begin() + kNumBefore));
      results[{victim.ticket, 0}] = whole.at({victim.ticket, 0});
      EXPECT_EQ(results, whole);
    }
  }
}

TEST_F(EngineTest, ASpoiledRowBeyondTheEndOfASampleIsNoError) {
  SpoiledModel spoiled(testing::SourcePath("deploy/demo/target"));
  InProcessProposers none;
  GenerationRequest request = Request("x = 1\nx = 1\nx = 1\nx = 1\n", 0, 40);
  const Results whole = Generate({request}, none);
  InProcessProposers oracle({{"oracle", Oracle(whole, {request})}});
  request.stop.stop_token_ids = {whole.begin()->second.token_ids[7]};
  const Results truth = Generate({request}, none);
  Use(*spoiled.transformer());
  const size_t num_tokens = truth.begin()->second.token_ids.size();
  for (size_t num_beyond = 0; num_beyond < 3; ++num_beyond) {
    spoiled.backend().Spoil({.seed = request.sampling.seed,
                             .t = static_cast<uint32_t>(request.prompt.size() + num_tokens + num_beyond),
                             .value = std::nanf("")});
    EXPECT_EQ(Generate({request}, none), truth);
    EXPECT_EQ(Generate({request}, oracle), truth);
    EXPECT_GT(spoiled.backend().num_spoiled(), 0) << "the test proves nothing: no tree reached beyond the end";
  }
}

TEST_F(EngineTest, HigherPriorityGoesFirst) {
  InProcessProposers none;
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

TEST_F(EngineTest, AShortPromptBehindALongPromptBeginsSoon) {
  InProcessProposers none;
  GenerationRequest long_one = Request("x", 0, 5);
  while (long_one.prompt.size() < 900) {
    long_one.prompt.push_back(static_cast<int32_t>(100 + 7 * long_one.prompt.size() % 900));
  }
  const GenerationRequest short_one = Request("import os\n", 0, 20);
  const Results truth = Generate({long_one, short_one}, none, {.config = {.max_step_rows = 512}});
  const std::unique_ptr<Engine> engine =
      MakeEngine(none, {.config = {.max_running_samples = 8, .max_step_rows = 32}, .now = testing::EvenClock()});
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), long_one), absl::OkStatus());
  engine->Step();
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), short_one), absl::OkStatus());
  engine->Step();
  EXPECT_EQ(results_.at({short_one.ticket, 0}).token_ids.size(), 1) << "the long prompt needs 27 more steps";
  EXPECT_EQ(engine->GetStats().num_prompt_tokens, 32 + 32);
  while (engine->Step()) continue;
  EXPECT_EQ(results_, truth);
}

TEST_F(EngineTest, StoppingTheThreadEndsRunningRequests) {
  InProcessProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {});
  engine->Start();
  const GenerationRequest request = Request("x = 1\n", 0.8f, 900);
  ASSERT_EQ(engine->Submit(engine->Reserve().value(), request), absl::OkStatus());
  engine->Stop();
  EXPECT_EQ(results_.at({request.ticket, 0}).finish_reason, FinishReason::kAbort);
}

}  // namespace
}  // namespace foretoken::verifier
