// SPDX-License-Identifier: Apache-2.0
// Whom to ask. If these tests fail, a proposer that slows the server down is asked for good, or one that speeds it up
// is never asked again.
#include "verifier_service/planner/speculation_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace foretoken::verifier {
namespace {

// A verifier whose cycles take 10 ms, and longer for each proposer that is asked. Each proposer wins tokens of its own.
class World {
 public:
  World(std::vector<double> costs_ms, std::vector<double> wins)
      : costs_ms(std::move(costs_ms)), wins(std::move(wins)), policy(this->costs_ms.size()) {}

  uint32_t all() const { return (1u << costs_ms.size()) - 1; }

  // Runs so many cycles of one sequence that allows these proposers; returns its tokens per millisecond.
  double Run(int num_cycles, uint32_t allowed, int32_t num_sequences = 1) {
    double tokens = 0, ms = 0;
    for (int cycle = 0; cycle < num_cycles; ++cycle) {
      const StepPolicy decided = policy.Decide({.num_sequences = num_sequences, .allowed = allowed});
      // Prompts make cycles longer, as predicted.
      const double rows_ms = 6 + static_cast<double>(random() % 5);
      double cycle_ms = rows_ms + 2 + 10 * std::abs(noise * std::normal_distribution<double>()(random));
      int num_won = 0;
      for (size_t i = 0; i < costs_ms.size(); ++i) {
        if ((decided.proposers >> i & 1) == 0) continue;
        cycle_ms += costs_ms[i];
        if (wins[i] > 0) num_won += std::poisson_distribution<int>(wins[i] * num_sequences)(random);
      }
      policy.Observe({.cycle_ms = cycle_ms,
                      .step_ms = rows_ms,
                      .plain_ms = rows_ms,
                      .num_drawing = num_sequences,
                      .num_emitted = num_sequences + num_won,
                      .num_roots = num_sequences,
                      .num_guessed = num_won});
      tokens += num_sequences + num_won;
      ms += cycle_ms;
    }
    return tokens / ms;
  }

  // The set that is asked for most of the next cycles: trials of others are short.
  uint32_t Asked(uint32_t allowed, int num_cycles = 1000) {
    std::vector<int> counts(all() + 1);
    for (int cycle = 0; cycle < num_cycles; ++cycle) {
      Run(1, allowed);
      ++counts[policy.asked()];
    }
    return static_cast<uint32_t>(std::ranges::max_element(counts) - counts.begin());
  }

  std::vector<double> costs_ms, wins;
  double noise = 0.02;
  SpeculationPolicy policy;
  std::mt19937 random{7};
};

TEST(SpeculationPolicy, AsksAllAllowedProposersBeforeItKnows) {
  World world({0, 0, 0}, {1, 0, 0});
  EXPECT_EQ(world.policy.Decide({.num_sequences = 1, .allowed = 0b101}).proposers, 0b101u);
}

TEST(SpeculationPolicy, KeepsAProposerThatWinsMoreThanItCosts) {
  World world({2}, {1});
  world.Run(500, 1);
  EXPECT_EQ(world.Asked(1), 1u);
}

TEST(SpeculationPolicy, RestsAProposerThatCostsMoreThanItWins) {
  World world({8}, {0.2});
  world.Run(500, 1);
  EXPECT_EQ(world.Asked(1), 0u);
}

TEST(SpeculationPolicy, FindsTheOneProposerThatIsWorthAsking) {
  World world({6, 1, 8}, {0.1, 1, 0.2});
  world.Run(4000, 0b111);
  EXPECT_EQ(world.Asked(0b111), 0b010u);
}

TEST(SpeculationPolicy, DecidesForEachAllowedSetApart) {
  World world({1, 8}, {1, 0.2});
  for (int round = 0; round < 40; ++round) {
    world.Run(100, 0b11);
    world.Run(100, 0b10);
    world.Run(100, 0b01);
  }
  EXPECT_EQ(world.Asked(0b11), 0b01u);
  EXPECT_EQ(world.Asked(0b10), 0b00u);
  EXPECT_EQ(world.Asked(0b01), 0b01u);
}

TEST(SpeculationPolicy, RevisesAVerdictWhenTheWorldChanges) {
  World world({8}, {0.2});
  world.Run(2000, 1);
  ASSERT_EQ(world.Asked(1), 0u);
  world.costs_ms = {1};
  world.wins = {1};
  world.Run(6000, 1);
  EXPECT_EQ(world.Asked(1), 1u);
  world.costs_ms = {8};
  world.wins = {0.2};
  world.Run(6000, 1);
  EXPECT_EQ(world.Asked(1), 0u);
}

TEST(SpeculationPolicy, TrialsCostLittle) {
  World world({8}, {0.2});
  world.Run(500, 1);
  World plain({0}, {0});
  const double off = plain.Run(10000, 0);
  EXPECT_GT(world.Run(20000, 1), 0.97 * off);
}

TEST(SpeculationPolicy, ATrialThatCannotGoOnLeavesTheAskedSet) {
  World world({2, 0}, {1, 0.2});
  while (!world.policy.Decide({.num_sequences = 1, .allowed = 0b11}).is_trial) world.Run(1, 0b11);
  for (int cycle = 0; cycle < 200; ++cycle) {
    const StepPolicy decided = world.policy.Decide({.num_sequences = 1, .allowed = 0b11, .may_try = false});
    EXPECT_FALSE(decided.is_trial);
    EXPECT_EQ(decided.proposers, 0b11u);
    world.policy.Observe({.step_ms = 10, .num_drawing = 1, .num_emitted = 1, .is_comparable = false});
  }
  EXPECT_TRUE(world.policy.Decide({.num_sequences = 1, .allowed = 0b11}).is_trial);
}

TEST(SpeculationPolicy, ANewLoadBeginsWithTheVerdictOfTheNearest) {
  World world({8}, {0.2});
  world.Run(1000, 1, /*num_sequences=*/4);
  ASSERT_EQ(world.policy.asked(), 0u);
  EXPECT_EQ(world.policy.Decide({.num_sequences = 8, .allowed = 1}).proposers, 0u);
}

TEST(SpeculationPolicy, WaitsOnlyWhereGuessesAreWorthTheWait) {
  SpeculationPolicy policy(1);
  const auto num_waits = [&](double wait_ms, int32_t num_guessed) {
    int num = 0;
    for (int cycle = 0; cycle < 60; ++cycle) {
      const StepPolicy decided = policy.Decide({.num_sequences = 1, .allowed = 1, .may_try = false});
      num += decided.waits ? 1 : 0;
      policy.Observe({.cycle_ms = 12,
                      .step_ms = 10,
                      .plain_ms = 10,
                      .wait_ms = wait_ms,
                      .num_drawing = 1,
                      .num_emitted = 1 + num_guessed,
                      .num_roots = 1,
                      .num_guessed = num_guessed});
    }
    return num;
  };
  EXPECT_EQ(num_waits(1, 1), 60);
  EXPECT_LT(num_waits(2, 0), 45);
  EXPECT_LE(num_waits(2, 0), 4);  // a curious step waits in any case
}

TEST(SpeculationPolicy, ForgetsTheSituationThatWasUsedLongestAgo) {
  World world(std::vector<double>(8, 8), std::vector<double>(8, 0));
  world.Run(3000, 1);
  ASSERT_EQ(world.Asked(1), 0u);
  for (uint32_t allowed = 2; allowed < 200; ++allowed) world.Run(1, allowed);
  EXPECT_EQ(world.policy.Decide({.num_sequences = 1, .allowed = 1}).proposers, 1u);
}

TEST(SpeculationPolicy, WithoutProposersNobodyIsAskedAndNothingIsTried) {
  World world({}, {});
  world.Run(1000, ~0u);
  EXPECT_EQ(world.policy.asked(), 0u);
  EXPECT_EQ(world.policy.num_trials(), 0u);
}

}  // namespace
}  // namespace foretoken::verifier
