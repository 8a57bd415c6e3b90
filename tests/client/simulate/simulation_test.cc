// SPDX-License-Identifier: Apache-2.0
// The simulation against loads whose result follows by arithmetic. If this test fails, an operator buys too few
// machines or too many.
#include "client/simulate/simulation.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/simulate/sizing.h"
#include "gtest/gtest.h"

namespace foretoken::client {
namespace {

// A step takes 10 ms for any number of sequences. With speculation every step accepts two guesses, in 12 ms.
Profile SimpleProfile() {
  Profile profile;
  profile.plain = {{.num_sequences = 1, .num_steps = 100, .step_ms = 10, .accepted_lengths = {1}}};
  profile.speculative = {{.num_sequences = 1, .num_steps = 100, .step_ms = 12, .accepted_lengths = {0, 0, 1}}};
  profile.rows = {{.num_rows = 1, .step_ms = 10}};
  profile.proposers = {{.name = "draft", .proposal_ms = 0.1}};
  profile.requests = {{.prompt_tokens = 10, .output_tokens = 301}};
  return profile;
}

TEST(Simulate, PlainDecodingGivesATokenPerSequenceAndStep) {
  const SimulationResult result = Simulate(SimpleProfile(), {.speculates = false}, {.num_clients = 4, .seconds = 300});
  EXPECT_NEAR(result.tokens_per_s, 400, 8);
  EXPECT_NEAR(result.inter_token_ms->p50, 10, 0.1);
  EXPECT_EQ(result.tokens_per_step, 1);
  EXPECT_GT(result.verifier_busy_share, 0.99);
  EXPECT_TRUE(result.proposers.empty());
}

TEST(Simulate, AcceptedGuessesMakeStepsCountForMore) {
  const SimulationResult result = Simulate(SimpleProfile(), {}, {.num_clients = 4, .seconds = 300});
  EXPECT_NEAR(result.tokens_per_s, 4 * 3 / 0.012, 30);
  EXPECT_NEAR(result.inter_token_ms->p50, 4, 0.1);
  EXPECT_NEAR(result.tokens_per_step, 3, 0.05);
  EXPECT_NEAR(result.proposers[0].busy_share, 4 * 0.1 / 12, 0.005);
}

TEST(Simulate, ProposersWithTooMuchToDoAnswerLate) {
  Profile profile = SimpleProfile();
  profile.proposers[0].proposal_ms = 24;  // a replica serves half a sequence, and one that waits for a step's time
  const SimulationResult result = Simulate(profile, {.num_replicas = {1}}, {.num_clients = 4, .seconds = 300});
  EXPECT_GT(result.proposers[0].late_share, 0.8);
  EXPECT_GT(result.proposers[0].busy_share, 0.95);
  EXPECT_LT(result.tokens_per_step, 1.5);
  EXPECT_EQ(Simulate(profile, {.num_replicas = {8}}, {.num_clients = 4, .seconds = 300}).proposers[0].late_share, 0);
}

TEST(Simulate, EachProposerHasReplicasOfItsOwn) {
  Profile profile = SimpleProfile();
  profile.proposers = {{.name = "draft", .proposal_ms = 6}, {.name = "ngram", .proposal_ms = 0.3}};
  // 4 sequences ask every 12 ms: 2 replicas of the draft are busy all the time, one of ngram for a tenth of it.
  const SimulatedLoad load = {.num_clients = 4, .seconds = 300};
  const SimulationResult both = Simulate(profile, {.num_replicas = {4, 1}}, load);
  EXPECT_NEAR(both.tokens_per_step, 3, 0.05);
  EXPECT_NEAR(both.proposers[0].busy_share, 0.5, 0.02);
  EXPECT_NEAR(both.proposers[1].busy_share, 0.1, 0.01);
  profile.proposers[0].proposal_ms = 24;
  const SimulationResult slow = Simulate(profile, {.num_replicas = {1, 1}}, load);
  EXPECT_GT(slow.proposers[0].late_share, 0.8);
  EXPECT_EQ(slow.proposers[1].late_share, 0);
  EXPECT_LT(slow.tokens_per_step, 1.5) << "what they win together takes both";
}

TEST(Simulate, PromptsLengthenStepsUpToTheBound) {
  Profile profile = SimpleProfile();
  profile.rows = {{.num_rows = 1, .step_ms = 10}, {.num_rows = 1001, .step_ms = 1010}};
  profile.requests = {{.prompt_tokens = 400, .output_tokens = 200}};
  const SimulationResult alone = Simulate(profile, {.speculates = false}, {.num_clients = 1, .seconds = 300});
  EXPECT_NEAR(alone.time_to_first_token_ms->p50, 409, 1);
  // A newcomer gets 4 rows of a step beside a request that streams.
  const SimulationResult shared = Simulate(profile, {.speculates = false}, {.rate = 0.35, .seconds = 3000});
  EXPECT_GT(shared.inter_token_ms->p99, 12.5);
  EXPECT_LT(shared.inter_token_ms->p99, 18) << "two newcomers may take 8 rows";
}

TEST(Simulate, BeyondTheQueueRequestsAreRefused) {
  const SimulatedCluster cluster = {.speculates = false, .max_running = 8, .max_queued = 4};
  // 8 sequences of 3 s each: 2.67 requests per second.
  const SimulationResult result = Simulate(SimpleProfile(), cluster, {.rate = 8, .seconds = 600});
  EXPECT_NEAR(result.requests_per_s, 2.67, 0.05);
  EXPECT_NEAR(result.refused_share, 1 - 2.67 / 8, 0.02);
  const SimulationResult light = Simulate(SimpleProfile(), cluster, {.rate = 1, .seconds = 600});
  EXPECT_EQ(light.refused_share, 0);
  EXPECT_NEAR(light.requests_per_s, 1, 0.15);
}

TEST(Simulate, LongRequestsEndAtTheRateAtWhichTheyArrive) {
  Profile profile = SimpleProfile();
  profile.requests = {{.prompt_tokens = 10, .output_tokens = 1601}};  // 16 s
  const SimulationResult result =
      Simulate(profile, {.num_verifiers = 16, .speculates = false}, {.rate = 40, .seconds = 60});
  EXPECT_EQ(result.refused_share, 0);
  EXPECT_NEAR(result.requests_per_s, 40, 2);
  EXPECT_NEAR(result.inter_token_ms->p50, 10, 0.1);
}

TEST(Simulate, ARequestThatWaitsToTheEndIsLateByItsAge) {
  Profile profile = SimpleProfile();
  profile.requests = {{.prompt_tokens = 10, .output_tokens = 6000}};  // 60 s, and the others wait behind it
  const SimulationResult result =
      Simulate(profile, {.speculates = false, .max_running = 1}, {.rate = 1, .seconds = 60});
  ASSERT_TRUE(result.time_to_first_token_ms.has_value());
  EXPECT_GT(result.time_to_first_token_ms->p99, 35'000);
  EXPECT_LE(result.time_to_first_token_ms->p99, 40'000) << "it arrived after the first third of 60 s";
}

TEST(Simulate, EveryClusterMeetsTheSameRequests) {
  const auto num_arrived = [](int32_t num_verifiers) {
    return Simulate(SimpleProfile(), {.num_verifiers = num_verifiers}, {.rate = 3, .seconds = 60}).num_arrived;
  };
  EXPECT_NEAR(static_cast<double>(num_arrived(1)), 3 * 40, 40);
  EXPECT_EQ(num_arrived(1), num_arrived(50));
}

TEST(Simulate, ARefusedClientOfAClosedLoopComesAgain) {
  const SimulatedCluster cluster = {.speculates = false, .max_running = 2, .max_queued = 1};
  const SimulationResult result = Simulate(SimpleProfile(), cluster, {.num_clients = 6, .seconds = 300});
  EXPECT_NEAR(result.tokens_per_s, 200, 20) << "both places are in use to the end";
  EXPECT_GT(result.refused_share, 0.5) << "three clients are refused once a second";
}

TEST(Simulate, EqualSeedsGiveEqualResults) {
  const auto tokens_per_s = [](uint64_t seed) {
    return Simulate(SimpleProfile(), {}, {.rate = 3, .seconds = 60, .seed = seed}).tokens_per_s;
  };
  EXPECT_EQ(tokens_per_s(1), tokens_per_s(1));
  EXPECT_NE(tokens_per_s(1), tokens_per_s(2));
}

TEST(Simulate, TenThousandVerifiersTakeLittleTime) {
  const absl::Time begin = absl::Now();
  const SimulatedCluster cluster = {.num_verifiers = 10'000, .num_replicas = {2'000}};
  const SimulationResult result = Simulate(SimpleProfile(), cluster, {.rate = 20'000, .seconds = 2});
  EXPECT_GT(result.tokens_per_s, 1'000'000);
  EXPECT_LT(absl::Now() - begin, absl::Minutes(1));
}

TEST(Size, FindsTheFewestVerifiersAndReplicas) {
  Profile profile = SimpleProfile();
  profile.proposers[0].proposal_ms = 1;
  const SizingQuestion question = {.cluster = {.max_running = 8}};
  const SimulatedLoad load = {.rate = 20, .seconds = 120};
  const auto sizing = Size(profile, question, load);
  ASSERT_TRUE(sizing.ok());
  // A request takes 1.2 s of one of 8 places, so 20 a second need 3 verifiers, and somewhat more for the first token
  // of those that come together.
  EXPECT_GE(sizing->cluster.num_verifiers, 3);
  EXPECT_LE(sizing->cluster.num_verifiers, 6);
  EXPECT_GE(sizing->cluster.num_replicas[0], 2) << "24 sequences ask every 12 ms for 1 ms";
  EXPECT_LE(sizing->cluster.num_replicas[0], 4);
  EXPECT_GT(sizing->breaking_rate.value(), 20);
  EXPECT_LT(sizing->breaking_rate.value(), 60);
  const auto fewer =
      Size(profile, {.num_verifiers = sizing->cluster.num_verifiers - 1, .cluster = {.max_running = 8}}, load);
  EXPECT_GT(fewer->result.time_to_first_token_ms->p99, 1000);
  EXPECT_FALSE(fewer->breaking_rate.has_value()) << "it is broken already";
}

TEST(Size, FindsTheFewestReplicasOfEachProposer) {
  Profile profile = SimpleProfile();
  profile.proposers = {{.name = "draft", .proposal_ms = 11}, {.name = "ngram", .proposal_ms = 0.1}};
  const SimulatedLoad load = {.num_clients = 4, .seconds = 60};
  const auto sizing = Size(profile, {}, load);
  ASSERT_TRUE(sizing.ok());
  EXPECT_GE(sizing->cluster.num_replicas[0], 3) << "4 questions every 12 ms take 44 ms";
  EXPECT_EQ(sizing->cluster.num_replicas[1], 1);
  EXPECT_EQ(Size(profile, {.num_replicas = {6}}, load)->cluster.num_replicas, (std::vector<int32_t>{6, 1}));
}

TEST(Size, ServesRequestsThatEndAfterTheSimulation) {
  Profile profile = SimpleProfile();
  profile.requests = {{.prompt_tokens = 10, .output_tokens = 6000}};  // 60 s
  const auto sizing = Size(profile, {.cluster = {.speculates = false}}, {.rate = 1, .seconds = 60});
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_LE(sizing->cluster.num_verifiers, 2) << "60 requests run at the end, and 64 have room";
}

TEST(Size, NamesNoBreakingRateThatItHasNotFound) {
  const auto sizing = Size(SimpleProfile(), {.num_verifiers = 1000}, {.rate = 1, .seconds = 15});
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_FALSE(sizing->breaking_rate.has_value()) << "it serves " << *sizing->breaking_rate;
}

TEST(Size, SaysThatTheTimeIsTooShortForARequest) {
  const absl::Status status = Size(SimpleProfile(), {}, {.rate = 0.001, .seconds = 60}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "seconds: expected a time in which requests arrive after the first third, got 60");
}

TEST(Size, SaysThatNoNumberIsEnough) {
  Profile profile = SimpleProfile();
  profile.rows[0].step_ms = 2000;  // of a prompt's step
  const auto sizing = Size(profile, {}, {.rate = 1, .seconds = 60});
  EXPECT_EQ(sizing.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(CheckSimulation, NamesTheField) {
  const auto message = [](const SimulatedCluster& cluster, const SimulatedLoad& load) {
    return std::string(CheckSimulation(SimpleProfile(), cluster, load).message());
  };
  const SimulatedLoad good = {.rate = 1};
  EXPECT_EQ(message({}, good), "");
  EXPECT_EQ(message({.num_verifiers = 0}, good), "verifiers: expected 1 to 100000, got 0");
  EXPECT_EQ(message({.num_replicas = {0}}, good), "replicas: expected 1 to 100000, got 0");
  EXPECT_EQ(message({.num_replicas = {1, 1}}, good), "replicas: expected a number for each of 1 proposers, got 2");
  EXPECT_EQ(message({.max_running = 0}, good), "max_running: expected 1 to 4096, got 0");
  EXPECT_EQ(message({.max_queued = -1}, good), "max_queued: expected at least 0, got -1");
  EXPECT_EQ(message({.max_running = 600}, good), "max_step_rows: expected max_running, 600, to 1000000, got 512");
  EXPECT_EQ(message({.max_running = 600, .prompts = {.max_step_rows = 600}}, good), "");
  EXPECT_EQ(message({.prompts = {.max_inter_token_growth = 0.9}}, good),
            "max_inter_token_growth: expected at least 1, got 0.9");
  EXPECT_EQ(message({.prompts = {.max_burst_prompt_tokens = -1}}, good),
            "max_burst_prompt_tokens: expected at least 0, got -1");
  EXPECT_EQ(message({.prompts = {.burst_window_ms = 7.2e6}}, good), "burst_window: expected 0 to 1h, got 2h");
  EXPECT_EQ(message({}, {.rate = -1}), "rate: expected 0 to 1e7 requests per second, got -1");
  EXPECT_EQ(message({}, {}), "expected either a rate or a number of clients");
  EXPECT_EQ(message({}, {.rate = 1, .seconds = 0}), "seconds: expected 1 to 86400, got 0");
}

}  // namespace
}  // namespace foretoken::client
