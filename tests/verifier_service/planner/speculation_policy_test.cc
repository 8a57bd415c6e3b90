// SPDX-License-Identifier: Apache-2.0
// Whom to ask. If these tests fail, a proposer that slows the server down is asked for good, or one that speeds it up
// is never asked again.
#include "verifier_service/planner/speculation_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <utility>
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
      missed_cycles = decided.proposers == 0 ? std::min(missed_cycles + 1, max_missed_cycles)
                                             : std::max(missed_cycles - kCatchUpSpeed, 0);
      num_trial_cycles += decided.is_trial ? 1 : 0;
      const double plain_ms = 6 + static_cast<double>(random() % 5);
      const double rows_ms = plain_ms + prompt_ms;
      const double texts_wins = stretch_cycles > 0 && num_cycles_run++ / stretch_cycles % 2 == 0 ? 0 : 1;
      double cycle_ms =
          rows_ms + 2 + std::exchange(stall_ms, 0) + 10 * std::abs(noise * std::normal_distribution<double>()(random));
      int num_won = 0;
      if (std::popcount(decided.proposers) > 1) cycle_ms += slow_together_ms;
      for (size_t i = 0; i < costs_ms.size(); ++i) {
        if ((decided.proposers >> i & 1) == 0) continue;
        cycle_ms += costs_ms[i];
        if (wins[i] * texts_wins > 0 && missed_cycles == 0)
          num_won += std::poisson_distribution<int>(texts_wins * wins[i] * num_sequences)(random);
      }
      policy.Observe({.cycle_ms = cycle_ms,
                      .step_ms = rows_ms,
                      .plain_ms = rows_ms,
                      .prompt_ms = prompt_ms,
                      .num_decoding = num_sequences,
                      .num_emitted = num_sequences + num_won,
                      .num_roots = num_sequences,
                      .num_guessed = num_won,
                      .num_trees = decided.proposers != 0 && has_trees ? num_sequences : 0});
      tokens += num_sequences + num_won;
      ms += cycle_ms;
      if (decided.proposers != 0) asked_ms += cycle_ms;
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
  double slow_together_ms = 0;  // of a cycle in which several proposers are asked
  // A proposer that was not asked for so many cycles first catches up, kCatchUpSpeed cycles in one, and wins nothing.
  static constexpr int kCatchUpSpeed = 4;
  int max_missed_cycles = 0;
  int missed_cycles = 0;
  int stretch_cycles = 0;  // if set, texts that nobody guesses and texts as above take turns after so many cycles
  int num_cycles_run = 0;
  double prompt_ms = 0;   // of each cycle, as predicted
  double stall_ms = 0;    // of the next cycle alone
  bool has_trees = true;  // where a proposer is asked: else its trees are not worth their rows
  int num_trial_cycles = 0;
  double asked_ms = 0;  // time in which some proposer was asked
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

// A step without nodes emits one token whatever the text, so only the noise of times hides what a proposer costs.
TEST(SpeculationPolicy, SoonRestsAProposerWhoseTreesAreNotWorthTheirRows) {
  const auto trial_cycles = [](bool has_trees) {
    World world({0.6}, {0});
    world.has_trees = has_trees;
    while (world.policy.num_trials() == 0) world.Run(1, 1);
    EXPECT_EQ(world.policy.Decide({.num_sequences = 1, .allowed = 1, .may_try = false}).proposers, 0u);
    return world.num_trial_cycles;
  };
  EXPECT_LT(trial_cycles(false), 100);
  EXPECT_GT(trial_cycles(true), 200);
}

// To be sure that such proposers win nothing takes most of these cycles.
TEST(SpeculationPolicy, AServerThatKnowsNothingYetLosesLittle) {
  World plain({0}, {0});
  const double off = plain.Run(1000, 0);
  const auto share_of_off = [&](const std::vector<double>& costs_ms) {
    World world(costs_ms, std::vector<double>(costs_ms.size(), 0));
    return world.Run(1000, world.all()) / off;
  };
  EXPECT_GT(share_of_off({1}), 0.97);
  EXPECT_GT(share_of_off({0.9, 0.3}), 0.95);
  EXPECT_GT(share_of_off({2, 2}), 0.92);
}

TEST(SpeculationPolicy, AServerThatKnowsNothingYetKeepsAProposerThatWinsALittle) {
  int num_kept = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    World world({2}, {0.5});
    world.random.seed(seed);
    num_kept += world.Asked(1) == 1 ? 1 : 0;
  }
  EXPECT_GE(num_kept, 18);
}

// A prompt takes 20 ms of each cycle, and the decoding of a token 10 ms. The proposer adds 6 ms and wins half a token,
// which is worth 5 ms.
TEST(SpeculationPolicy, PromptsDoNotMakeAProposerLookFaster) {
  World world({6}, {0.5});
  world.prompt_ms = 20;
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
  world.Run(12'000, 1);
  EXPECT_EQ(world.Asked(1), 1u);
  world.costs_ms = {8};
  world.wins = {0.2};
  world.Run(12'000, 1);
  EXPECT_EQ(world.Asked(1), 0u);
}

TEST(SpeculationPolicy, TrialsCostLittle) {
  World world({8}, {0.2});
  world.Run(500, 1);
  World plain({0}, {0});
  const double off = plain.Run(10000, 0);
  EXPECT_GT(world.Run(20000, 1), 0.985 * off);
}

TEST(SpeculationPolicy, AProposerThatMustCatchUpComesBack) {
  World world({8}, {0.2});
  world.Run(2000, 1);
  ASSERT_EQ(world.Asked(1), 0u);
  world.costs_ms = {1};
  world.wins = {1};
  world.max_missed_cycles = 160;
  world.Run(10000, 1);
  EXPECT_EQ(world.Asked(1), 1u);
}

TEST(SpeculationPolicy, FindsTheBetterOfTwoThatHinderEachOther) {
  World world({5, 5}, {0.5, 1.2});
  world.slow_together_ms = 40;
  world.Run(10000, 0b11);
  EXPECT_EQ(world.Asked(0b11), 0b10u);
}

TEST(SpeculationPolicy, TrialsAmongEqualSetsTakeAFifthOfTheCyclesAtMost) {
  World world({5}, {0.5});  // 10 ms for 1 token, 15 ms for 1.5
  world.Run(20000, 1);
  EXPECT_LT(world.num_trial_cycles, 20000 * 0.22);
}

TEST(SpeculationPolicy, ATrialThatNeverSettlesCostsLittle) {
  World world({40}, {0.2});
  world.Run(3000, 1, 4);
  ASSERT_EQ(world.policy.asked(), 0u);
  world.asked_ms = 0;
  // Two loads take turns cycle by cycle. While they ask different sets, no cycle says anything about either.
  double ms = 0;
  for (int cycle = 0; cycle < 100'000; ++cycle) {
    const int32_t load = cycle % 2 == 0 ? 1 : 4;
    ms += load / world.Run(1, 1, load);
  }
  EXPECT_LT(world.asked_ms, 0.1 * ms);
}

TEST(SpeculationPolicy, ASituationThatReturnsRarelyIsNotInATrialAllTheTime) {
  World world({40}, {0.2});
  for (int visit = 0; visit < 200; ++visit) {
    world.Run(2500, 1, 4);
    const int before = world.num_trial_cycles;
    world.Run(50, 1, 1);
    if (visit > 190) {
      EXPECT_LT(world.num_trial_cycles - before, 25) << visit;
    }
  }
}

TEST(SpeculationPolicy, AStalledCycleIsNoVerdict) {
  for (const double stall_ms : {200, 1000, 600'000}) {
    World world({2}, {1});
    for (int cycle = 0; cycle < 4000; ++cycle) {
      if (cycle % 100 == 0) world.stall_ms = stall_ms;
      world.Run(1, 1);
    }
    world.Run(10'000, 1);
    EXPECT_EQ(world.Asked(1), 1u) << stall_ms;
  }
}

// A stall that is too short to be told from a proposer's cost by its length alone.
TEST(SpeculationPolicy, AStallInTheFirstTrialDecidesNothing) {
  const auto asked_soon = [](double cost_ms, double wins, bool stalls_in_tried) {
    World world({cost_ms}, {wins});
    const auto is_there = [&] {
      const StepPolicy decided = world.policy.Decide({.num_sequences = 1, .allowed = 1});
      return decided.is_trial && (decided.proposers == 0) == stalls_in_tried;
    };
    while (!is_there()) world.Run(1, 1);
    world.Run(2, 1);  // the first cycles after a change of the set do not count
    world.stall_ms = 250;
    world.Run(400, 1);
    return world.Asked(1, 600);
  };
  for (const bool stalls_in_tried : {false, true}) {
    EXPECT_EQ(asked_soon(8, 0.2, stalls_in_tried), 0u) << stalls_in_tried;
    EXPECT_EQ(asked_soon(2, 1, stalls_in_tried), 1u) << stalls_in_tried;
  }
}

TEST(SpeculationPolicy, ForecastsAStepWithoutPrompts) {
  SpeculationPolicy policy(1);
  const auto expected_ms = [&](const CycleOutcome& outcome) {
    policy.Observe(outcome);
    return policy.Decide({.num_sequences = 1, .allowed = 1}).expected_step_ms;
  };
  EXPECT_EQ(expected_ms({.step_ms = 20, .num_decoding = 1}), 20);
  EXPECT_EQ(expected_ms({.step_ms = 600, .prompt_ms = 600}), 20) << "nothing decoded";
  EXPECT_EQ(expected_ms({.step_ms = 630, .prompt_ms = 600, .num_decoding = 1}), 30);
  EXPECT_EQ(expected_ms({.step_ms = 500, .prompt_ms = 600, .num_decoding = 1}), 0);
}

TEST(SpeculationPolicy, AnUntriedSituationIsTriedWhileOthersAre) {
  World world({5, 8}, {0.5, 0.2});
  double asked_ms = 0, ms = 0;
  for (int round = 0; round < 200; ++round) {
    world.Run(1600, 0b01);
    const double before = world.asked_ms;
    ms += 20 / world.Run(20, 0b10);
    asked_ms += world.asked_ms - before;
  }
  EXPECT_LT(asked_ms, 0.5 * ms);
}

TEST(SpeculationPolicy, AProposerThatIsALittleTooCostlyIsNotAskedForGood) {
  World world({0.7}, {0});
  world.Run(100'000, 1);
  EXPECT_EQ(world.Asked(1, 20'000), 0u);
}

TEST(SpeculationPolicy, StretchesOfTextThatNobodyGuessesDoNotDecide) {
  World world({2}, {2});
  world.stretch_cycles = 120;
  world.Run(5000, 1);
  EXPECT_GT(world.Asked(1, 20'000), 0u);
}

TEST(SpeculationPolicy, NothingIsWonWhereNobodyIsAsked) {
  World world({8}, {0.2});
  world.Run(500, 1);
  ASSERT_EQ(world.Asked(1), 0u);
  while (world.policy.asked() != 0) world.Run(1, 1);
  EXPECT_EQ(world.policy.gain(), 0);
}

TEST(SpeculationPolicy, LearnsFromRequestsThatAskInAnyCaseWhetherToWait) {
  SpeculationPolicy policy(1);
  int num_waits = 0;
  for (int cycle = 0; cycle < 200; ++cycle) {
    num_waits += policy.Decide({.num_sequences = 1, .allowed = 1, .may_try = false}).waits ? 1 : 0;
    policy.Observe(
        {.step_ms = 10, .wait_ms = 2, .num_decoding = 1, .num_emitted = 1, .num_roots = 1, .is_comparable = false});
  }
  EXPECT_LT(num_waits, 60);
}

TEST(SpeculationPolicy, ATrialThatCannotGoOnLeavesTheAskedSet) {
  World world({2, 0}, {1, 0.2});
  while (!world.policy.Decide({.num_sequences = 1, .allowed = 0b11}).is_trial) world.Run(1, 0b11);
  for (int cycle = 0; cycle < 200; ++cycle) {
    const StepPolicy decided = world.policy.Decide({.num_sequences = 1, .allowed = 0b11, .may_try = false});
    EXPECT_FALSE(decided.is_trial);
    EXPECT_EQ(decided.proposers, 0b11u);
    world.policy.Observe({.step_ms = 10, .num_decoding = 1, .num_emitted = 1, .is_comparable = false});
  }
  EXPECT_TRUE(world.policy.Decide({.num_sequences = 1, .allowed = 0b11}).is_trial);
}

TEST(SpeculationPolicy, ANewLoadBeginsWithTheVerdictOfTheNearest) {
  World world({8}, {0.2});
  world.Run(1000, 1, /*num_sequences=*/4);
  ASSERT_EQ(world.policy.asked(), 0u);
  EXPECT_EQ(world.policy.Decide({.num_sequences = 8, .allowed = 1}).proposers, 0u);
}

TEST(SpeculationPolicy, ANewSetBeginsWithWhatItsPartsFoundOut) {
  World world({8, 1}, {0.2, 1});
  for (const uint32_t allowed : {0b01u, 0b10u}) world.Run(2000, allowed);
  ASSERT_EQ(world.Asked(0b01), 0b00u);
  ASSERT_EQ(world.Asked(0b10), 0b10u);
  EXPECT_EQ(world.policy.Decide({.num_sequences = 1, .allowed = 0b11, .may_try = false}).proposers, 0b10u);
}

TEST(SpeculationPolicy, ASetThatWasAskedBrieflyTakesOverWhatItsPartsFindOut) {
  World world({8, 8}, {0.2, 0.2});
  world.Run(3, 0b11);
  for (const uint32_t allowed : {0b01u, 0b10u}) world.Run(2000, allowed);
  EXPECT_EQ(world.policy.Decide({.num_sequences = 1, .allowed = 0b11, .may_try = false}).proposers, 0u);
}

TEST(SpeculationPolicy, ASetWhosePartsAllLostIsNotTriedAtOnce) {
  World world({8, 8}, {0.2, 0.2});
  for (const uint32_t allowed : {0b01u, 0b10u}) world.Run(2000, allowed);
  const uint64_t num_trials = world.policy.num_trials();
  for (int cycle = 0; cycle < 500; ++cycle) {
    world.Run(1, 0b11);
    EXPECT_EQ(world.policy.asked(), 0u);
  }
  EXPECT_EQ(world.policy.num_trials(), num_trials);
  world.Run(40000, 0b11);
  EXPECT_GT(world.policy.num_trials(), num_trials);
}

TEST(SpeculationPolicy, ALossAmongManySaysNothingAboutFewer) {
  World world({8, 8}, {0.2, 0.2});
  world.Run(4000, 0b11);
  ASSERT_EQ(world.Asked(0b11), 0u);
  EXPECT_EQ(world.policy.Decide({.num_sequences = 1, .allowed = 0b10, .may_try = false}).proposers, 0b10u);
}

TEST(SpeculationPolicy, ASetThatJustLostIsNotTriedAgainAtOnce) {
  World world({8}, {0.2});
  while (world.policy.num_trials() == 0) world.Run(1, 1);
  for (int cycle = 0; cycle < 300; ++cycle) {
    world.Run(1, 1);
    EXPECT_EQ(world.policy.asked(), 0u);
  }
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
                      .num_decoding = 1,
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
  for (const uint32_t allowed : {1u, 2u}) {
    world.Run(3000, allowed);
    ASSERT_EQ(world.Asked(allowed), 0u);
  }
  for (uint32_t allowed = 3; allowed < 200; ++allowed) {
    world.Run(1, allowed);
    world.Run(1, 2);
  }
  EXPECT_EQ(world.policy.Decide({.num_sequences = 1, .allowed = 2, .may_try = false}).proposers, 0u);
  EXPECT_EQ(world.policy.Decide({.num_sequences = 1, .allowed = 1, .may_try = false}).proposers, 1u);
}

TEST(SpeculationPolicy, WithoutProposersNobodyIsAskedAndNothingIsTried) {
  World world({}, {});
  world.Run(1000, ~0u);
  EXPECT_EQ(world.policy.asked(), 0u);
  EXPECT_EQ(world.policy.num_trials(), 0u);
}

}  // namespace
}  // namespace foretoken::verifier
