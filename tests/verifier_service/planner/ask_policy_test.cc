// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/planner/ask_policy.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

namespace foretoken::verifier {
namespace {

// How long a cycle lasts where nobody is asked: 10 ms and noise, which only ever adds.
constexpr double kPlainMs = 10.16;

// A verifier whose cycles take 10 ms, and longer for every proposer that is asked; each proposer wins tokens of its
// own, and what several would win is won by whoever of them is asked.
class World {
 public:
  World(std::vector<double> costs_ms, std::vector<double> wins)
      : costs_ms(std::move(costs_ms)), wins(std::move(wins)), policy(this->costs_ms.size()) {}

  // Runs so many cycles; returns tokens per millisecond.
  double Run(int num_cycles, int32_t num_sequences = 1) {
    double tokens = 0, ms = 0;
    for (int cycle = 0; cycle < num_cycles; ++cycle) {
      choice = policy.Choose(num_sequences);
      // Prompts make cycles longer, as foreseen.
      const double rows_ms = 6 + static_cast<double>(random() % 5);
      double cycle_ms = rows_ms + 2 + 10 * std::abs(noise * std::normal_distribution<double>()(random));
      std::vector<uint32_t> accepted_by;
      for (size_t i = 0; i < costs_ms.size(); ++i) cycle_ms += (choice.proposers >> i & 1) * costs_ms[i];
      if (!choice.is_plain && choice.proposers != 0) cycle_ms += tree_ms;
      if (!choice.is_plain && std::popcount(choice.proposers) > 1) cycle_ms += slow_together_ms;
      const auto win = [&](uint32_t bits, double mean) {
        const int num_won = choice.is_plain || (bits & choice.proposers) == 0 ? 0 : Poisson(mean * num_sequences);
        accepted_by.insert(accepted_by.end(), num_won, bits & choice.proposers);
      };
      for (size_t i = 0; i < wins.size(); ++i) win(1u << i, wins[i]);
      win((1u << wins.size()) - 1, won_by_any);
      const int32_t num_emitted = num_sequences + static_cast<int32_t>(accepted_by.size());
      num_plain += choice.is_plain ? 1 : 0;
      policy.Observe({.cycle_ms = cycle_ms,
                      .predicted_ms = rows_ms,
                      .plain_ms = rows_ms,
                      .num_drawing = num_sequences,
                      .num_emitted = num_emitted,
                      .accepted_by = accepted_by});
      tokens += num_emitted;
      ms += cycle_ms;
    }
    return tokens / ms;
  }

  int Poisson(double mean) { return mean > 0 ? std::poisson_distribution<int>(mean)(random) : 0; }

  std::vector<double> costs_ms, wins;
  double won_by_any = 0;
  double noise = 0.02;
  double tree_ms = 0;           // what rows take, where there are any
  double slow_together_ms = 0;  // likewise, where several are asked
  AskPolicy policy;
  AskPolicy::Choice choice;
  int num_plain = 0;
  std::mt19937 random{7};
};

TEST(AskPolicy, AsksEverybodyBeforeItKnows) {
  World world({0, 0}, {1, 0});
  EXPECT_EQ(world.policy.Choose(1).proposers, 3u);
  EXPECT_FALSE(world.policy.Choose(1).is_plain);
}

TEST(AskPolicy, ARoundThatPausesLeavesEverythingAsUsualAndGoesOnLater) {
  World world({2, 0}, {1, 0.2});
  for (int cycle = 0; cycle < 1000 && !world.policy.Choose(1).is_plain; ++cycle) world.Run(1);
  ASSERT_TRUE(world.policy.Choose(1).is_plain);
  for (int cycle = 0; cycle < 200; ++cycle) {
    const AskPolicy::Choice choice = world.policy.Choose(1, AskPolicy::Trials::kPause);
    EXPECT_EQ(choice.proposers, 3u);
    EXPECT_FALSE(choice.is_plain);
    EXPECT_FALSE(choice.is_trial);
    if (cycle % 2 == 0) continue;  // nobody observes it
    world.policy.Observe({.cycle_ms = 100, .predicted_ms = 8, .plain_ms = 8, .num_drawing = 1, .num_emitted = 1});
  }
  EXPECT_EQ(world.policy.num_rounds(), 0);
  for (int cycle = 0; cycle < 300 && world.policy.num_rounds() == 0; ++cycle) world.Run(1);
  EXPECT_EQ(world.policy.num_rounds(), 1);
  EXPECT_GT(world.policy.worths()[0].cost_ms, 0.5);
  EXPECT_LT(world.policy.worths()[0].cost_ms, 4) << "cycles of the pause are not compared";
}

TEST(AskPolicy, GoesOnAskingWhoEarnsMoreThanItCosts) {
  World world({2, 0}, {1, 0.2});
  world.Run(1000);
  EXPECT_TRUE(world.policy.worths()[0].is_asked);
  EXPECT_TRUE(world.policy.worths()[1].is_asked);
  EXPECT_NEAR(world.policy.worths()[0].cost_ms, 1.7, 0.4);
}

TEST(AskPolicy, LeavesOutWhoCostsMoreThanItEarnsAndNobodyElse) {
  World world({0.1, 15}, {0.5, 0.5});
  world.Run(400);
  EXPECT_TRUE(world.policy.worths()[0].is_asked);
  EXPECT_FALSE(world.policy.worths()[1].is_asked);
  EXPECT_NEAR(world.policy.worths()[1].cost_ms, 14.7, 0.5);
}

TEST(AskPolicy, InTheLongRunLosesNextToNothing) {
  // Twice the cycle for a tenth more tokens: never to ask would give 1 token in 10 ms.
  World bad({10}, {0.1});
  bad.Run(1000);
  EXPECT_GT(bad.Run(8000), 0.98 * 1 / kPlainMs);
  // And where asking pays, the rounds' plain steps are few.
  World good({1}, {2});
  good.Run(1000);
  good.num_plain = 0;
  EXPECT_GT(good.Run(80000), 0.975 * 3 / (kPlainMs + 1));
  EXPECT_GT(good.num_plain, 0);
}

TEST(AskPolicy, OfTwoThatGuessAlikeTheCheaperIsAsked) {
  World world({4, 1}, {0.01, 0.01});
  world.won_by_any = 2;
  world.Run(300);
  EXPECT_EQ(world.choice.proposers, 2u);
  world.costs_ms = {1, 4};
  world.Run(12000);
  EXPECT_EQ(world.choice.proposers, 1u);
}

TEST(AskPolicy, AsksNobodyWhereRowsCostMoreThanGuessesWin) {
  World world({0.1}, {0.5});
  world.tree_ms = 10;  // half as many tokens again, in twice the time
  world.Run(400);
  EXPECT_EQ(world.choice.proposers, 0u);
}

TEST(AskPolicy, NoiseSilencesNobody) {
  World world({0.5, 0.2}, {0.6, 0.3});
  world.noise = 0.5;  // half of a cycle, as on a machine that others use
  int num_silent = 0;
  for (int i = 0; i < 4000; ++i) {
    world.Run(1);
    if (world.choice.proposers != 3u && !world.choice.is_plain) ++num_silent;
  }
  EXPECT_LT(num_silent, 400);
}

TEST(AskPolicy, AsksAgainWhenAProposerBecameCheap) {
  World world({15}, {0.8});
  world.Run(400);
  EXPECT_FALSE(world.policy.worths()[0].is_asked);
  world.costs_ms = {0.5};
  world.Run(2000);
  EXPECT_TRUE(world.policy.worths()[0].is_asked);
}

TEST(AskPolicy, KnowsAnUnloadedServerStillAfterASpike) {
  World world({3}, {1.5});
  world.Run(500);
  EXPECT_EQ(world.choice.proposers, 1u);
  world.costs_ms = {40};
  world.Run(800, 64);
  EXPECT_FALSE(world.policy.worths()[0].is_asked);
  world.costs_ms = {3};
  EXPECT_EQ(world.policy.Choose(1).proposers, 1u) << "at once";
}

TEST(AskPolicy, ABatchThatLosesOneNowAndThenStaysAtItsLoad) {
  World world({15}, {0.5});
  for (int i = 0; i < 400; ++i) world.Run(1, i % 3 == 0 ? 7 : 8);
  EXPECT_EQ(world.choice.proposers, 0u);
}

TEST(AskPolicy, LoadsThatNeverLastAreNotFilledWithRounds) {
  World world({1}, {2});
  for (int i = 0; i < 3000; ++i) world.Run(5, i % 2 == 0 ? 1 : 4);
  EXPECT_LT(world.num_plain, 15000 / 20);
  EXPECT_GT(world.policy.num_rounds(), 0u) << "but have theirs, bit by bit";
}

TEST(AskPolicy, ALoadThatIsNewFollowsTheNearestThatIsKnown) {
  World world({15}, {0.5});
  world.Run(400, 8);
  ASSERT_EQ(world.choice.proposers, 0u);
  EXPECT_EQ(world.policy.Choose(4).proposers, 0u);
  world.costs_ms = {0.1};
  world.Run(400, 1);  // a load that has had its own rounds
  ASSERT_EQ(world.choice.proposers, 1u);
  EXPECT_EQ(world.policy.Choose(2).proposers, 1u);
  EXPECT_EQ(world.policy.Choose(16).proposers, 0u);
}

TEST(AskPolicy, LearnsInFewerCyclesWhereManySequencesTeach) {
  const auto cycles_before_a_round = [](int32_t num_sequences) {
    World world({15}, {0.5});
    int num_cycles = 0;
    for (; world.num_plain == 0; ++num_cycles) world.Run(1, num_sequences);
    return num_cycles;
  };
  EXPECT_LE(cycles_before_a_round(8), cycles_before_a_round(1) / 4);
}

TEST(AskPolicy, PutsDownToTheDearWhatNobodyExplains) {
  World world({0, 1}, {0.3, 0.5});
  world.slow_together_ms = 15;  // no plain step shows it
  world.Run(600);
  EXPECT_EQ(world.choice.proposers, 1u);
  EXPECT_GT(world.Run(20000), 0.95 * 1.3 / kPlainMs);
}

TEST(AskPolicy, WorksWithoutProposers) {
  World world({}, {});
  world.Run(400);
  EXPECT_EQ(world.choice.proposers, 0u);
  EXPECT_FALSE(world.choice.is_plain);
}

}  // namespace
}  // namespace foretoken::verifier
