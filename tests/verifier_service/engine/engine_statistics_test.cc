// SPDX-License-Identifier: Apache-2.0
// The usage counts of a completion. If this test fails, clients are told wrong counts of steps, guesses or accepted
// tokens, for example when a sample ends inside an accepted path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/testing/cases/varied_requests.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"

namespace foretoken::verifier {
namespace {

using testing::EngineOptions;
using testing::InProcessProposers;
using ::testing::IsEmpty;
using testing::Random;
using testing::Results;

class EngineStatistics : public testing::EngineFixture {
 protected:
  static uint64_t NumSteps(const SpeculationCounts& counts) {
    return std::accumulate(counts.accepted_lengths.begin(), counts.accepted_lengths.end(), uint64_t{0});
  }
  static uint64_t NumAccepted(const SpeculationCounts& counts) {
    uint64_t num_accepted = 0;
    for (size_t length = 0; length < counts.accepted_lengths.size(); ++length) {
      num_accepted += length * counts.accepted_lengths[length];
    }
    return num_accepted;
  }

  InProcessProposers none_;
  const EngineOptions even_ = {
      .config = {.max_queued_requests = 1024}, .num_blocks = 1024, .now = testing::EvenClock()};
};

TEST_F(EngineStatistics, AddUpWhereverASampleEnds) {
  std::vector<GenerationRequest> requests = testing::VariedRequests(*tokenizer_, 60, {0, 0.7f, 1.2f});
  const Results truth = Generate(requests, none_, even_);
  for (GenerationRequest& request : requests) {
    request.speculation.prediction = Prediction(truth.at({request.ticket, 0}).token_ids, 1024);
  }
  InProcessProposers proposers(
      {{"oracle", testing::Oracle(testing::WholeTexts(truth, requests))}, {"random", Random(2)}});
  EXPECT_EQ(Generate(requests, proposers, even_), truth);
  EXPECT_GT(num_stops_in_trees_, 0) << "some samples end inside an accepted path";
  uint64_t num_accepted = 0;
  SpeculationCounts sum;
  for (const auto& [key, completion] : completions_) {
    const SpeculationCounts& counts = completion.speculation;
    const auto num_steps = static_cast<uint64_t>(completion.num_steps);
    EXPECT_EQ(completion.mode, SpeculationMode::kAuto);
    ASSERT_THAT(counts.accepted_lengths, Not(IsEmpty()));
    EXPECT_GT(counts.accepted_lengths.back(), 0);
    EXPECT_EQ(NumSteps(counts), num_steps);
    EXPECT_EQ(NumAccepted(counts), completion.num_completion_tokens - num_steps);
    EXPECT_LE(counts.num_verified_nodes, counts.num_proposed_nodes);
    uint64_t sum_of_proposed = 0, sum_of_accepted = 0;
    for (const ProposerCount& count : completion.proposers) {
      EXPECT_LE(count.num_proposed, counts.num_verified_nodes);
      EXPECT_LE(count.num_accepted, NumAccepted(counts));
      sum_of_proposed += count.num_proposed;
      sum_of_accepted += count.num_accepted;
    }
    EXPECT_GE(sum_of_proposed, counts.num_verified_nodes);
    EXPECT_GE(sum_of_accepted, NumAccepted(counts));
    num_accepted += NumAccepted(counts);
    sum.Add(counts);
  }
  EXPECT_GT(num_accepted, 500);
  EXPECT_EQ(stats_.speculation.accepted_lengths, sum.accepted_lengths);
  EXPECT_EQ(stats_.speculation.num_verified_nodes, sum.num_verified_nodes);
  EXPECT_EQ(stats_.speculation.num_proposed_nodes, sum.num_proposed_nodes);
  EXPECT_EQ(stats_.speculation.num_accepted_prediction_tokens, sum.num_accepted_prediction_tokens);
}

TEST_F(EngineStatistics, ANodeCountsForEveryProposerThatNamesItAndOnceInTheSum) {
  const std::vector<GenerationRequest> requests = {Request("def read_config(path):\n", 0, 60)};
  const Results truth = Generate(requests, none_, even_);
  const testing::Guess oracle = testing::Oracle(testing::WholeTexts(truth, requests));
  InProcessProposers twins({{"one", oracle}, {"other", oracle}});
  EXPECT_EQ(Generate(requests, twins, even_), truth);
  const SampleCompletion& completion = completions_.begin()->second;
  ASSERT_EQ(completion.proposers.size(), 2);
  for (const ProposerCount& count : completion.proposers) {
    EXPECT_EQ(count.num_proposed, completion.speculation.num_verified_nodes);
    EXPECT_EQ(count.num_accepted, NumAccepted(completion.speculation));
  }
  EXPECT_GT(NumAccepted(completion.speculation), 40);
}

TEST_F(EngineStatistics, WithoutSpeculationEveryStepAcceptsNothing) {
  GenerationRequest request = Request("def read_config(path):\n", 0, 20);
  request.stop.ignore_eos = true;
  Generate({request}, none_, even_);
  const SampleCompletion& completion = completions_.begin()->second;
  EXPECT_EQ(completion.mode, SpeculationMode::kOff) << "there is no proposer";
  EXPECT_EQ(completion.speculation.accepted_lengths, std::vector<uint64_t>{20});
  EXPECT_EQ(completion.speculation.num_proposed_nodes, 0);
  EXPECT_THAT(completion.proposers, IsEmpty());
}

}  // namespace
}  // namespace foretoken::verifier
