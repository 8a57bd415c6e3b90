// SPDX-License-Identifier: Apache-2.0
// A client's own prediction in the engine. If this test fails, a prediction changes tokens, or a right prediction does
// not save steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"

namespace foretoken::verifier {
namespace {

using testing::EngineOptions;
using testing::InProcessProposers;
using testing::Random;
using testing::RandomValues;
using testing::Results;
using EngineTokens = std::vector<int32_t>;

constexpr int32_t kMaxContext = 1024;

class EnginePrediction : public testing::EngineFixture {
 protected:
  std::vector<GenerationRequest> MixedRequests() {
    next_ticket_ = 1;
    std::vector<GenerationRequest> requests = {Request("def read_config(path):\n", 0, 60),
                                               Request("import os\nimport sys\n", 0.8f),
                                               Request("class Stack:\n    def push(self, item):\n", 1.2f)};
    requests[1].output.num_logprobs = 2;
    requests[1].sampling.repetition_penalty = 1.2f;
    requests[2].num_samples = 3;
    requests[2].stop.stop_strings = {"return", "):"};
    return requests;
  }

  static void Predict(const EngineTokens& tokens, GenerationRequest& request) {
    request.speculation.prediction = Prediction(tokens, kMaxContext);
  }

  // A greedy request that ignores end-of-text tokens.
  GenerationRequest Long(int32_t max_tokens = 200) {
    GenerationRequest request = Request("def read_config(path):\n", 0, max_tokens);
    request.stop.ignore_eos = true;
    return request;
  }

  const SampleCompletion& CompletionOf(const GenerationRequest& request) {
    return completions_.at({request.ticket, 0});
  }

  InProcessProposers none_;
  const EngineOptions even_ = {.now = testing::EvenClock()};
};

TEST_F(EnginePrediction, TokensDoNotDependOnIt) {
  const std::vector<GenerationRequest> requests = MixedRequests();
  const Results truth = Generate(requests, none_, even_);
  RandomValues random(1);
  const auto garbage = [&](int32_t count) {
    EngineTokens tokens(static_cast<size_t>(count));
    for (int32_t& token : tokens) token = random.Below(4000);
    return tokens;
  };
  const std::vector<std::pair<const char*, std::function<EngineTokens(const EngineTokens& right)>>> predictions = {
      {"right", [](const EngineTokens& right) { return right; }},
      {"empty", [](const EngineTokens&) { return EngineTokens(); }},
      {"without its first token",
       [](const EngineTokens& right) { return EngineTokens(right.begin() + 1, right.end()); }},
      {"with every ninth token changed",
       [](EngineTokens right) {
         for (size_t i = 4; i < right.size(); i += 9) right[i] = 7;
         return right;
       }},
      {"backwards", [](const EngineTokens& right) { return EngineTokens(right.rbegin(), right.rend()); }},
      {"garbage", [&](const EngineTokens&) { return garbage(50); }},
      {"one token", [](const EngineTokens&) { return EngineTokens(500, 7); }},
      {"longer than the context", [&](EngineTokens right) {
         const EngineTokens more = garbage(2 * kMaxContext);
         right.insert(right.begin() + 10, more.begin(), more.end());
         return right;
       }}};
  for (const auto& [name, predict] : predictions) {
    std::vector<GenerationRequest> predicted = requests;
    for (GenerationRequest& request : predicted) Predict(predict(truth.at({request.ticket, 0}).token_ids), request);
    EXPECT_EQ(Generate(predicted, none_, even_), truth) << name;
    InProcessProposers others(
        {{"oracle", testing::Oracle(testing::WholeTexts(truth, requests))}, {"random", Random(2)}});
    EXPECT_EQ(Generate(predicted, others, even_), truth) << name << ", merged with others";
    EXPECT_GT(stats_.proposers[0].num_accepted, 0) << name;
    EXPECT_EQ(Generate(predicted, none_, {.num_blocks = 9, .now = testing::EvenClock()}), truth) << name << ", tight";
  }
}

TEST_F(EnginePrediction, ARightPredictionSavesMostSteps) {
  GenerationRequest request = Long();
  const Results truth = Generate({request}, none_, even_);
  EXPECT_EQ(CompletionOf(request).num_steps, 200);
  const EngineTokens right = truth.at({request.ticket, 0}).token_ids;
  Predict(right, request);
  EXPECT_EQ(Generate({request}, none_, even_), truth);
  const SampleCompletion completion = CompletionOf(request);
  EXPECT_LE(completion.num_steps, 9);  // one for the prompt, then 33 tokens per step
  EXPECT_EQ(completion.speculation.num_accepted_prediction_tokens, 200);
  EXPECT_EQ(completion.speculation.num_rejected_prediction_tokens, 0);
  ASSERT_EQ(completion.proposers.size(), 1);
  EXPECT_EQ(completion.proposers[0].proposer, "prediction");
  EXPECT_EQ(completion.proposers[0].num_accepted, 200 - completion.num_steps);
  EXPECT_EQ(prediction_count().num_accepted, 200 - completion.num_steps);
  EXPECT_EQ(stats_.speculation.num_accepted_prediction_tokens, 200);
}

TEST_F(EnginePrediction, APredictionWithFewErrorsSavesNearlyAsMuch) {
  GenerationRequest request = Long();
  request.sampling.temperature = 0.8f;  // makes a text without repetitions
  const Results truth = Generate({request}, none_, even_);
  EngineTokens edited = truth.at({request.ticket, 0}).token_ids;
  edited.insert(edited.begin() + 100, {7, 8, 9, 10, 11});
  for (const size_t place : {20, 60, 150}) edited[place] = 7;
  Predict(edited, request);
  EXPECT_EQ(Generate({request}, none_, even_), truth);
  EXPECT_LE(CompletionOf(request).num_steps, 20);
  const SpeculationCounts& counts = CompletionOf(request).speculation;
  EXPECT_EQ(counts.num_rejected_prediction_tokens + counts.num_accepted_prediction_tokens, 205);
  EXPECT_GE(counts.num_accepted_prediction_tokens, 190);
  EXPECT_LE(counts.num_accepted_prediction_tokens, 197);
}

TEST_F(EnginePrediction, AWrongPredictionCostsOnlySpeed) {
  GenerationRequest request = Long();
  const Results truth = Generate({request}, none_, even_);
  Predict(EngineTokens(200, 7), request);
  EXPECT_EQ(Generate({request}, none_, even_), truth);
  const SampleCompletion completion = CompletionOf(request);
  EXPECT_EQ(completion.num_steps, 200);
  EXPECT_EQ(completion.speculation.num_accepted_prediction_tokens, 0);
  EXPECT_EQ(completion.speculation.num_rejected_prediction_tokens, 200);
  EXPECT_LT(completion.speculation.num_verified_nodes, 600) << "the engine soon learns that the prediction is wrong";
}

TEST_F(EnginePrediction, ADifferentlyTokenizedPredictionMeetsTheOutputAgain) {
  GenerationRequest request = Long();
  const Results truth = Generate({request}, none_, even_);
  // The text is cut in the middle of a word, so its first tokens differ from the output's.
  std::string text = truth.at({request.ticket, 0}).text;
  text.erase(0, text.find_first_not_of(' ') + 1);
  Predict(tokenizer_->Encode(text, {.add_special_tokens = false}).value(), request);
  EXPECT_EQ(Generate({request}, none_, even_), truth);
  EXPECT_LE(CompletionOf(request).num_steps, 16);
}

TEST_F(EnginePrediction, EachSampleFollowsThePredictionSeparately) {
  GenerationRequest request = Request("import os\nimport sys\n", 0.8f);
  request.num_samples = 3;
  request.stop.ignore_eos = true;
  const Results truth = Generate({request}, none_, even_);
  Predict(truth.at({request.ticket, 1}).token_ids, request);
  EXPECT_EQ(Generate({request}, none_, even_), truth);
  EXPECT_LE(completions_.at({request.ticket, 1}).num_steps, 4);
  EXPECT_EQ(completions_.at({request.ticket, 1}).speculation.num_accepted_prediction_tokens, 40);
  EXPECT_GT(completions_.at({request.ticket, 0}).num_steps, 10);
  EXPECT_GT(completions_.at({request.ticket, 2}).num_steps, 10);
}

TEST_F(EnginePrediction, WithSpeculationOffThePredictionIsNotUsed) {
  GenerationRequest request = Long(40);
  const Results truth = Generate({request}, none_, even_);
  Predict(truth.at({request.ticket, 0}).token_ids, request);
  std::vector<GenerationRequest> requests = {request, request};
  requests[0].speculation.mode = SpeculationMode::kOff;
  requests[1].speculation.max_tree_nodes = 0;
  requests[1].request_id = "other";
  requests[1].ticket = next_ticket_++;
  Generate(requests, none_, even_);
  for (const GenerationRequest& off : requests) {
    EXPECT_EQ(CompletionOf(off).num_steps, 40);
    EXPECT_EQ(CompletionOf(off).mode, SpeculationMode::kOff);
    EXPECT_EQ(CompletionOf(off).speculation.num_accepted_prediction_tokens, 0);
    EXPECT_EQ(CompletionOf(off).speculation.num_rejected_prediction_tokens, 0);
  }
  EXPECT_EQ(stats_.num_rows, 2 * (40 + request.prompt.size() - 1));
}

TEST_F(EnginePrediction, NodesAreLimitedAndThePredictionNeedsNoName) {
  GenerationRequest request = Long(100);
  const Results truth = Generate({request}, none_, even_);
  Predict(truth.at({request.ticket, 0}).token_ids, request);
  request.speculation.max_tree_nodes = 4;
  request.speculation.proposers = {"random"};
  InProcessProposers random({{"random", Random(1)}});
  EXPECT_EQ(Generate({request}, random, even_), truth);
  const SampleCompletion completion = CompletionOf(request);
  EXPECT_GE(completion.num_steps, 20);
  EXPECT_LE(completion.num_steps, 50);  // the other proposer takes some of the four nodes at first
  EXPECT_LE(completion.speculation.num_verified_nodes, 4 * completion.num_steps);
}

TEST_F(EnginePrediction, GreedyTokensUnderRejectionSamplingDoNotDependOnIt) {
  GenerationRequest request = Long();
  const Results truth = Generate({request}, none_, even_);
  EngineTokens edited = truth.at({request.ticket, 0}).token_ids;
  for (size_t i = 9; i < edited.size(); i += 20) edited[i] = 7;
  request.verification = kernels::VerificationRule::kRejectionSampling;
  Predict(edited, request);
  EXPECT_EQ(Generate({request}, none_, even_), truth);
  EXPECT_LE(CompletionOf(request).num_steps, 60);
}

}  // namespace
}  // namespace foretoken::verifier
