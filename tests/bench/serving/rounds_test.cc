// SPDX-License-Identifier: Apache-2.0
// RunRounds over real processes, with the demo models. If these tests fail, serving_bench reports wrong numbers or
// hides a failed request or a changed token.
#include "tests/bench/serving/rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "tests/bench/serving/setup.h"
#include "tests/testing/paths.h"

namespace foretoken::bench {
namespace {

constexpr int kMaxTokens = 24;

std::unique_ptr<ServiceProcesses> Serve(const std::string& model) {
  return ServiceProcesses::Start({.model_directory = testing::SourcePath("deploy/demo/" + model),
                                  .verifier_flags = {"--threads=1"},
                                  .proposers = {{.method = "ngram"}}})
      .value();
}

std::vector<foretoken::v1::GenerateRequest> Requests() {
  return MakeRequests({"import os\nimport ", "for i in range(10):\n", "class A:\n    def"}, /*temperature=*/0.8,
                      kMaxTokens);
}

TEST(RunRounds, CountsWhatEachWayTook) {
  const auto service = Serve("target");
  const std::vector<Way> ways = {{.name = "off", .service = service.get(), .speculation = SpeculationOff()},
                                 {.name = "on", .service = service.get(), .speculation = SpeculationBy({"ngram"})}};
  const absl::StatusOr<Rounds> rounds = RunRounds(ways, Requests(), {.num_clients = 2, .round_size = 2});
  ASSERT_TRUE(rounds.ok()) << rounds.status();
  ASSERT_EQ(rounds->by_way.size(), 2);
  for (const std::vector<Turn>& turns : rounds->by_way) {
    ASSERT_EQ(turns.size(), 2);  // one of two requests, and one of the remaining request
    EXPECT_EQ(turns[0].num_tokens, 2 * kMaxTokens);
    EXPECT_EQ(turns[1].num_tokens, kMaxTokens);
    EXPECT_EQ(Sum(turns).num_streams, 3);
    EXPECT_GT(Sum(turns).compute_s, 0);
    EXPECT_LT(turns[1].compute_s, turns[1].wall_s);
    EXPECT_GT(turns[1].processor_s, 0);
    EXPECT_LE(turns[1].processor_s, turns[1].wall_s * std::thread::hardware_concurrency());
  }
  const Turn off = Sum(rounds->by_way[0]);
  EXPECT_EQ(TokensPerStep(off), 1);
  EXPECT_EQ(AcceptedPerStep(off), 0);
  EXPECT_EQ(NodesPerStep(off), 0);
  const Turn on = Sum(rounds->by_way[1]);
  EXPECT_EQ(on.num_accepted + on.num_sample_steps, on.num_tokens);
}

TEST(RunRounds, FailsWhereTwoWaysGiveOtherTokens) {
  const auto target = Serve("target");
  const auto draft = Serve("draft");
  const std::vector<Way> ways = {{.name = "target", .service = target.get(), .speculation = SpeculationOff()},
                                 {.name = "draft", .service = draft.get(), .speculation = SpeculationOff()}};
  const absl::Status status = RunRounds(ways, Requests(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("tokens differ: request 0, sample 0: token "));
}

TEST(RunRounds, FailsWhereARequestFails) {
  const auto service = Serve("target");
  const std::vector<Way> ways = {
      {.name = "on", .service = service.get(), .speculation = SpeculationBy({"no such proposer"})}};
  EXPECT_EQ(RunRounds(ways, Requests(), {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ServiceProcessesDeathTest, SayWhyTheyDidNotStart) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(ServiceProcesses::Start({.model_directory = "/nowhere"}).IgnoreError(), "/nowhere/config.json");
}

TEST(Ratios, AreThoseOfEachRound) {
  const std::vector<Turn> a = {{.wall_s = 1, .num_tokens = 30}, {.wall_s = 2, .num_tokens = 10}};
  const std::vector<Turn> b = {{.wall_s = 1, .num_tokens = 10}, {.wall_s = 1, .num_tokens = 10}};
  EXPECT_THAT(Ratios(a, b, TokensPerSecond), ::testing::ElementsAre(3, 0.5));
  EXPECT_EQ(TokensPerSecond(Sum(a)), 40.0 / 3);
}

}  // namespace
}  // namespace foretoken::bench
