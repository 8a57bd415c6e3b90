// SPDX-License-Identifier: Apache-2.0
// The constraints that a request puts on its output: stop conditions, lengths, lists of tokens and penalties. If this
// test fails, an output has tokens that the client has forbidden, or it ends too early or too late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::verifier {
namespace {

using testing::Guess;
using ::testing::HasSubstr;
using testing::InProcessProposers;
using testing::Random;
using testing::Result;
using testing::Results;

constexpr char kCountingText[] = "x = 1\nx = 1\nx = 1\n";

class EngineConstraintsTest : public testing::EngineFixture {
 protected:
  static Guess Oracle(const Results& truth, const std::vector<GenerationRequest>& requests) {
    return testing::Oracle(testing::WholeTexts(truth, requests));
  }

  static std::vector<int32_t> DigitsAndLines() {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < 4096; ++id) {
      const tokenizer::Token* token = tokenizer_->vocabulary().Find(id);
      if (token != nullptr && token->bytes.find_first_not_of(" 0123456789x=\n") == std::string::npos) ids.push_back(id);
    }
    return ids;
  }

  // Seven greedy and seven sampled requests with lists, min_tokens and penalties. `free` is the output without any.
  std::vector<GenerationRequest> ConstrainedRequests(const Result& free) {
    std::vector<GenerationRequest> requests;
    for (const float temperature : {0.0f, 0.8f}) {
      for (int i = 0; i < 7; ++i) requests.push_back(Request(kCountingText, temperature, 40));
      GenerationRequest* const at = &requests[requests.size() - 7];
      at[0].allowed_token_ids = DigitsAndLines();
      at[1].banned_token_ids = {free.token_ids[0], free.token_ids[2]};
      std::sort(at[1].banned_token_ids.begin(), at[1].banned_token_ids.end());
      at[2].stop = {.max_tokens = 40, .min_tokens = 13, .stop_token_ids = {198, 220}};
      at[3].stop = at[2].stop;
      at[3].allowed_token_ids = DigitsAndLines();
      at[3].num_samples = 2;
      at[4].sampling.repetition_penalty = 1.3f;
      at[5].sampling.presence_penalty = 1.2f;
      at[6].sampling.frequency_penalty = 0.4f;
    }
    return requests;
  }

  static void ExpectConstraintsHold(const GenerationRequest& request, const Result& result) {
    const std::vector<int32_t>& ids = result.token_ids;
    ASSERT_FALSE(ids.empty()) << result;
    for (size_t j = 0; j < ids.size(); ++j) {
      const auto is_id = [&](int32_t id) { return id == ids[j]; };
      EXPECT_TRUE(request.allowed_token_ids.empty() || std::ranges::any_of(request.allowed_token_ids, is_id));
      EXPECT_TRUE(std::ranges::none_of(request.banned_token_ids, is_id));
      EXPECT_TRUE(j >= request.stop.min_tokens || std::ranges::none_of(request.stop.stop_token_ids, is_id)) << j;
    }
    EXPECT_GE(ids.size(), request.stop.min_tokens);
  }
};

TEST_F(EngineConstraintsTest, StopsInsideAnAcceptedPathWhereItWouldHaveStoppedWithoutOne) {
  InProcessProposers none;
  GenerationRequest request = Request("x = 1\nx = 1\nx = 1\nx = 1\n", 0, 60);
  const Results unstopped = Generate({request}, none);
  const std::string stop = unstopped.begin()->second.text.substr(20, 9);  // more than one token
  request.stop.stop_strings = {stop};
  const Results truth = Generate({request}, none);
  EXPECT_EQ(truth.begin()->second.finish_reason, FinishReason::kStop);
  EXPECT_EQ(truth.begin()->second.matched_stop_string, stop);
  EXPECT_THAT(truth.begin()->second.text, ::testing::Not(HasSubstr(stop)));
  InProcessProposers oracle({{"oracle", Oracle(unstopped, {request})}});
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

TEST_F(EngineConstraintsTest, MaxTokensHoldsWithADeepTree) {
  InProcessProposers none;
  GenerationRequest request = Request("x = 1\nx = 1\nx = 1\nx = 1\n", 0, 40);
  const Results longer = Generate({request}, none);
  request.stop.max_tokens = 13;
  InProcessProposers oracle({{"oracle", Oracle(longer, {request})}});
  const Result result = Generate({request}, oracle).begin()->second;
  EXPECT_EQ(result.token_ids.size(), 13);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_GT(stats_.proposers[0].num_accepted, 0);
}

TEST_F(EngineConstraintsTest, FillsTheContextToItsLastToken) {
  InProcessProposers random({{"random", Random(1)}});
  GenerationRequest request = Request("x = 1\n", 0.8f);
  request.stop.ignore_eos = true;
  request.stop.max_tokens = 16 * 16 - static_cast<int32_t>(request.prompt.size());
  const Result result = Generate({request}, random, {.num_blocks = 16}).begin()->second;
  EXPECT_EQ(result.token_ids.size(), request.stop.max_tokens);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
}

TEST_F(EngineConstraintsTest, ARequestWithoutATokenToDrawEndsAlone) {
  InProcessProposers none;
  GenerationRequest empty = Request("x = 1\n", 1, 20);
  for (int32_t id = 0; id < 4096; ++id) empty.stop.stop_token_ids.push_back(id);
  empty.stop.min_tokens = 5;  // excludes all allowed ids, so no token is left
  empty.num_samples = 2;
  const GenerationRequest other = Request("import os\n", 0, 20);
  const Results alone = Generate({other}, none);
  const Results results = Generate({empty, other}, none);
  EXPECT_EQ(results.at({empty.ticket, 0}).error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(results.at({empty.ticket, 0}).error.message(), HasSubstr("leave no token"));
  EXPECT_EQ(results.at({other.ticket, 0}), alone.at({other.ticket, 0}));
}

TEST_F(EngineConstraintsTest, ListsAndMinTokensHold) {
  InProcessProposers none;
  const Result free = Generate({Request(kCountingText, 0, 40)}, none).begin()->second;
  const std::vector<GenerationRequest> requests = ConstrainedRequests(free);
  const Results results = Generate(requests, none);
  for (const GenerationRequest& request : requests) {
    for (int32_t i = 0; i < request.num_samples; ++i) ExpectConstraintsHold(request, results.at({request.ticket, i}));
  }
  EXPECT_LT(results.at({requests[2].ticket, 0}).token_ids.size(), 40)
      << "the test proves nothing: the output reaches max_tokens";
}

TEST_F(EngineConstraintsTest, ListsMinTokensAndPenaltiesGiveTheSameTokensUnderSpeculation) {
  InProcessProposers none;
  const Result free = Generate({Request(kCountingText, 0, 40)}, none).begin()->second;
  std::vector<GenerationRequest> requests = ConstrainedRequests(free);
  const Results truth = Generate(requests, none);
  for (GenerationRequest& request : requests) request.speculation.mode = SpeculationMode::kAlways;
  InProcessProposers oracle({{"oracle", Oracle(truth, requests)}});
  EXPECT_EQ(Generate(requests, oracle), truth);
  EXPECT_GT(stats_.proposers[0].num_accepted, 200);
  // The proposer guesses the output without masks and penalties. The engine must reject these guesses.
  InProcessProposers wrong({{"free", Oracle({{{requests[0].ticket, 0}, free}}, requests)}});
  EXPECT_EQ(Generate(requests, wrong), truth);
  InProcessProposers random({{"random", Random(1)}});
  EXPECT_EQ(Generate(requests, random), truth);
}

TEST_F(EngineConstraintsTest, AnAllowedListWithoutTheEndGoesOnToTheLast) {
  InProcessProposers none;
  GenerationRequest request = Request("x = 1\n", 0.8f, 30);
  request.allowed_token_ids = {4092};
  Result result = Generate({request}, none).begin()->second;
  EXPECT_EQ(result.token_ids, std::vector<int32_t>{4092});
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  request.allowed_token_ids = {4091};
  result = Generate({request}, none).begin()->second;
  EXPECT_EQ(result.token_ids, std::vector<int32_t>(30, 4091));
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
}

}  // namespace
}  // namespace foretoken::verifier
