// SPDX-License-Identifier: Apache-2.0
// If these tests fail, the command line shows users wrong latencies, rates or acceptance numbers.
#include "client/generation_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

Arrival At(int ms, int num_tokens, uint32_t sample_index = 0) {
  return {.since_start = absl::Milliseconds(ms), .sample_index = sample_index, .num_tokens = num_tokens};
}

TimedGeneration Completed(int num_tokens, int steps) {
  TimedGeneration timed;
  Sample& sample = timed.generation.samples.emplace_back();
  sample.token_ids.resize(num_tokens);
  foretoken::v1::Usage& usage = *sample.completion.emplace().mutable_usage();
  usage.set_completion_tokens(num_tokens);
  usage.set_steps(steps);
  auto& proposer = *usage.add_proposers();
  proposer.set_proposer("ngram");
  proposer.set_proposed_tokens(10);
  proposer.set_accepted_tokens(4);
  usage.set_proposed_nodes(20);
  usage.set_verified_nodes(10);
  return timed;
}

TEST(Percentile, IsTheNearestRank) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_EQ(Percentile(values, 0), 1);
  EXPECT_EQ(Percentile(values, 0.5), 2);
  EXPECT_EQ(Percentile(values, 0.51), 3);
  EXPECT_EQ(Percentile(values, 0.99), 4);
  EXPECT_EQ(Percentile(std::vector<double>{7}, 0.5), 7);
}

TEST(Summarise, SharesAMessagesGapAmongItsTokens) {
  TimedGeneration timed = Completed(8, 3);
  timed.arrivals = {At(10, 1), At(22, 3), At(30, 4)};  // 4, 4, 4 and 2, 2, 2, 2 ms
  const GenerationStats stats = Summarise({&timed, 1}, absl::Milliseconds(40));
  EXPECT_DOUBLE_EQ(stats.inter_token_ms->mean, 20.0 / 7);
  EXPECT_DOUBLE_EQ(stats.inter_token_ms->p50, 2);
  EXPECT_DOUBLE_EQ(stats.inter_token_ms->p99, 4);
  EXPECT_DOUBLE_EQ(stats.time_to_first_token_ms->p50, 10);
  EXPECT_DOUBLE_EQ(stats.tokens_per_s, 8 / 0.04);
  EXPECT_DOUBLE_EQ(*stats.tokens_per_step, 8.0 / 3);
}

TEST(Summarise, MessagesThatArriveTogetherShareTheirTime) {
  TimedGeneration timed;
  const auto at = [](int us) { return Arrival{.since_start = absl::Microseconds(us), .num_tokens = 1}; };
  // A reader that reads every 20 ms gets two messages each time.
  timed.arrivals = {at(10'000), at(10'010), at(30'000), at(30'010), at(50'000), at(50'020)};
  const GenerationStats stats = Summarise({&timed, 1}, absl::Seconds(1));
  EXPECT_DOUBLE_EQ(stats.inter_token_ms->p50, 10);
  EXPECT_NEAR(stats.inter_token_ms->p99, 10, 0.01);
  // Tokens that arrive every 0.4 ms.
  timed.arrivals.clear();
  for (int i = 0; i < 100; ++i) timed.arrivals.push_back(at(400 * i));
  EXPECT_DOUBLE_EQ(Summarise({&timed, 1}, absl::Seconds(1)).inter_token_ms->p50, 0.4);
  // Tokens of one arrival have no time between them.
  timed.arrivals = {at(10'000), at(10'010)};
  EXPECT_FALSE(Summarise({&timed, 1}, absl::Seconds(1)).inter_token_ms.has_value());
}

TEST(Summarise, MeasuresEachSampleOnItsOwn) {
  TimedGeneration timed;
  timed.arrivals = {At(0, 1, 0), At(1, 1, 1), At(10, 1, 0), At(11, 1, 1)};
  EXPECT_DOUBLE_EQ(Summarise({&timed, 1}, absl::Seconds(1)).inter_token_ms->p50, 10);
}

TEST(Summarise, AddsUpProposersAndCountsErrorsByCode) {
  std::vector<TimedGeneration> generations = {Completed(3, 2), Completed(5, 2)};
  generations.emplace_back().status = absl::ResourceExhaustedError("full");
  const GenerationStats stats = Summarise(generations, absl::Seconds(2));
  EXPECT_EQ(stats.num_requests, 3);
  EXPECT_EQ(stats.num_failed, 1);
  EXPECT_EQ(stats.errors.at("RESOURCE_EXHAUSTED"), 1);
  EXPECT_EQ(stats.proposers.at("ngram").proposed_tokens, 20);
  EXPECT_EQ(stats.proposers.at("ngram").accepted_tokens, 8);
  EXPECT_DOUBLE_EQ(*stats.tokens_per_step, 2);
}

TEST(Summarise, AProposersNameCannotControlTheTerminal) {
  TimedGeneration timed = Completed(3, 2);
  timed.generation.samples[0].completion->mutable_usage()->mutable_proposers(0)->set_proposer("a\x1b[2J");
  EXPECT_TRUE(Summarise({&timed, 1}, absl::Seconds(1)).proposers.contains("a\\x1b[2J"));
}

TEST(Summarise, AddsUpAcceptedLengthsNodesAndPredictions) {
  std::vector<TimedGeneration> generations = {Completed(9, 4), Completed(3, 3)};
  foretoken::v1::Usage& usage = *generations[0].generation.samples[0].completion->mutable_usage();
  for (const uint64_t num_steps : {1, 2, 0, 1}) usage.add_accepted_lengths(num_steps);
  usage.set_accepted_prediction_tokens(5);
  usage.set_rejected_prediction_tokens(2);
  generations[1].generation.samples[0].completion->mutable_usage()->add_accepted_lengths(3);
  const GenerationStats stats = Summarise(generations, absl::Seconds(2));
  EXPECT_EQ(stats.accepted_lengths, (std::vector<uint64_t>{4, 2, 0, 1}));
  EXPECT_EQ(stats.proposed_nodes, 40);
  EXPECT_EQ(stats.verified_nodes, 20);
  const nlohmann::ordered_json json = ToJson(stats);
  EXPECT_EQ(json["accepted_lengths"], nlohmann::ordered_json::array({4, 2, 0, 1}));
  EXPECT_EQ(json["verified_nodes"], 20);
  EXPECT_EQ(json["accepted_prediction_tokens"], 5);
  EXPECT_EQ(json["rejected_prediction_tokens"], 2);
}

TEST(AcceptedShares, GroupLengthsAndAddUpToOne) {
  GenerationStats stats;
  EXPECT_TRUE(AcceptedShares(stats).empty());
  stats.accepted_lengths = std::vector<uint64_t>(40, 1);
  std::vector<std::string> shares;
  for (const AcceptedShare& share : AcceptedShares(stats)) {
    shares.push_back(absl::StrFormat("%s: %.0f", share.lengths, 40 * share.share));
  }
  EXPECT_THAT(shares, ::testing::ElementsAre("0: 1", "1: 1", "2-3: 2", "4-7: 4", "8-15: 8", "16+: 24"));
}

TEST(Summarise, LeavesValuesWithoutDataUnset) {
  const GenerationStats stats = Summarise({}, absl::ZeroDuration());
  EXPECT_FALSE(stats.time_to_first_token_ms.has_value());
  EXPECT_FALSE(stats.inter_token_ms.has_value());
  EXPECT_FALSE(stats.tokens_per_step.has_value());
  EXPECT_TRUE(ToJson(stats)["inter_token_ms"].is_null());
}

TEST(ToLine, ShowsSpeedAcceptanceAndLatency) {
  TimedGeneration timed = Completed(3, 2);
  timed.arrivals = {At(8, 1), At(12, 2)};
  EXPECT_EQ(ToLine(Summarise({&timed, 1}, absl::Milliseconds(12))),
            "3 tokens, 500.0 tokens/s, 1.50 tokens per step, first token after 8.0 ms, ngram accepted 4 of 10");
}

TEST(ToLine, ShowsAcceptedGuessesPerStepAndPredictedTokens) {
  TimedGeneration timed = Completed(9, 4);
  foretoken::v1::Usage& usage = *timed.generation.samples[0].completion->mutable_usage();
  for (const uint64_t num_steps : {2, 1, 0, 1}) usage.add_accepted_lengths(num_steps);
  usage.set_accepted_prediction_tokens(5);
  usage.set_rejected_prediction_tokens(2);
  EXPECT_EQ(ToLine(Summarise({&timed, 1}, absl::Milliseconds(12))),
            "9 tokens, 2.25 tokens per step, ngram accepted 4 of 10, steps that accepted 0: 50%, 1: 25%, 2-3: 25%, "
            "5 of 7 predicted tokens came");
}

}  // namespace
}  // namespace foretoken::client
