// SPDX-License-Identifier: Apache-2.0
// The planner's statistics after runs of the engine on the demo model. If this test fails, the metrics of offered,
// planned and accepted nodes or of learned costs are wrong.
#include "verifier_service/engine/planner_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"

namespace foretoken::verifier {
namespace {

using testing::EngineOptions;
using testing::InProcessProposers;
using testing::Random;
using testing::Results;

uint64_t NumCounts(const CountHistogram& histogram) {
  return std::accumulate(histogram.buckets.begin(), histogram.buckets.end(), uint64_t{0});
}

class PlannerStatsTest : public testing::EngineFixture {
 protected:
  // Checks sums that hold for any guesses.
  void CheckTotals() const {
    const PlannerStats& planner = stats_.planner;
    EXPECT_EQ(NumCounts(planner.step_rows), stats_.num_steps);
    EXPECT_EQ(planner.step_rows.sum, stats_.num_rows);
    EXPECT_EQ(planner.sequence_nodes.sum, planner.num_planned_nodes);
    EXPECT_LE(planner.num_accepted_nodes, planner.num_planned_nodes);
    EXPECT_LE(planner.num_planned_nodes, planner.num_offered_nodes);
    EXPECT_LE(planner.num_tree_steps, stats_.num_steps);
    // Each drawing sequence emits one token plus one per accepted node.
    EXPECT_EQ(NumCounts(planner.sequence_nodes) + planner.num_accepted_nodes, stats_.num_generated_tokens);
    EXPECT_GE(planner.expected_tokens, static_cast<double>(NumCounts(planner.sequence_nodes)));
    EXPECT_GT(planner.decode_ms, 0);
    EXPECT_GT(planner.plain_decode_ms, 0);
  }

  const EngineOptions even_ = {.now = testing::EvenClock()};
};

TEST(CountTimes, ComparesAStepWithTheForecastOfPlainDecoding) {
  PlannerStats stats;
  const StepForecast forecast = {
      .num_emitting = 2, .step_ms_without_trees = 10, .between_ms = 3, .between_ms_without_waits = 1};
  const StepTimes times = {.forward_ms = 12, .draw_ms = 1, .host_ms = 1, .wait_ms = 2};
  CountTimes(forecast, times, /*num_emitted=*/6, &stats);
  EXPECT_EQ(stats.decode_ms, 16);
  EXPECT_EQ(stats.plain_decode_ms, 33) << "three tokens per sequence take three steps without waits";
  CountTimes({.num_emitting = 2, .num_prompt_rows = 1}, times, 2, &stats);
  CountTimes({}, times, 0, &stats);
  EXPECT_EQ(stats.decode_ms, 16) << "steps with prompts, and without tokens, do not count";
}

TEST_F(PlannerStatsTest, WithoutGuessesEveryStepIsPlain) {
  InProcessProposers none;
  Generate({Request("import os\n", 0), Request("x = 1\n", 0)}, none, even_);
  CheckTotals();
  EXPECT_EQ(stats_.planner.num_tree_steps, 0);
  EXPECT_EQ(stats_.planner.num_offered_nodes, 0);
  EXPECT_EQ(stats_.planner.num_waits, 0);
  EXPECT_EQ(stats_.planner.num_curious_steps, stats_.num_steps / 32);
  EXPECT_GT(stats_.planner.num_curious_steps, 0);
  EXPECT_EQ(stats_.planner.expected_tokens, static_cast<double>(stats_.num_generated_tokens));
}

TEST_F(PlannerStatsTest, RightGuessesAreOfferedPlannedAcceptedAndScored) {
  const std::vector<GenerationRequest> requests = {Request("import os\n", 0), Request("x = 1\n", 0.8f)};
  InProcessProposers none;
  const Results truth = Generate(requests, none, even_);
  InProcessProposers two({{"oracle", testing::Oracle(testing::WholeTexts(truth, requests))}, {"random", Random(1)}});
  EXPECT_EQ(Generate(requests, two, even_), truth);
  CheckTotals();
  const PlannerStats& planner = stats_.planner;
  EXPECT_GT(planner.num_tree_steps, 3);
  EXPECT_GT(planner.num_waits, 0);
  EXPECT_GT(planner.num_accepted_nodes, 40);
  EXPECT_GT(planner.gain_tokens, 1);
  ASSERT_EQ(planner.chances.size(), 4);  // the last two are for clients' predictions and for grammars
  const ChanceCounts& oracle = planner.chances[0];
  for (size_t depth = 0; depth < ChanceCounts::kNumDepths; ++depth) {  // one of two siblings is right
    EXPECT_GT(oracle.num_hits[depth], 0) << ChanceCounts::kDepths[depth];
    EXPECT_EQ(oracle.num_trials[depth], 2 * oracle.num_hits[depth]) << ChanceCounts::kDepths[depth];
  }
  EXPECT_GT(planner.chances[1].num_trials[0], 0);
  EXPECT_EQ(planner.chances[1].num_hits[0], 0);
}

TEST_F(PlannerStatsTest, TrialsGoOnBesideARequestThatAsksInAnyCase) {
  const auto tries_none = [this](SpeculationMode mode_of_second) {
    InProcessProposers random({{"random", Random(1)}});
    const std::unique_ptr<Engine> engine = MakeEngine(random, {.now = testing::EvenClock()});
    for (const auto mode : {SpeculationMode::kAlways, mode_of_second}) {
      GenerationRequest request = Request("x = 1\n", 0, 150);
      request.stop.ignore_eos = true;
      request.speculation.mode = mode;
      EXPECT_TRUE(engine->Submit(engine->Reserve().value(), request).ok());
    }
    bool was_none_asked = false;
    for (int step = 0; engine->Step(); ++step) {
      const EngineStats stats = engine->GetStats();
      was_none_asked |= step > 5 && stats.num_running == 2 && stats.planner.asked_proposers == 0;
    }
    return was_none_asked;
  };
  EXPECT_TRUE(tries_none(SpeculationMode::kAuto));
  EXPECT_FALSE(tries_none(SpeculationMode::kAlways)) << "all sets are the same";
}

TEST_F(PlannerStatsTest, HasTheLearnedCostOfRows) {
  InProcessProposers none;
  EngineOptions options = even_;
  options.config.max_step_rows = 100;
  Generate({Request("import os\n", 0)}, none, options);
  std::vector<int32_t> rows;
  float last_ms = 0;
  for (const RowCost& cost : stats_.planner.row_costs) {
    rows.push_back(cost.num_rows);
    EXPECT_GE(cost.step_ms, std::exchange(last_ms, cost.step_ms));
  }
  EXPECT_THAT(rows, ::testing::ElementsAre(1, 2, 4, 8, 16, 32, 64, 100));
  // A forward pass, a draw and the wait for both read the clock three times. So the cost of 3 ms was learned.
  EXPECT_NEAR(stats_.planner.row_costs.front().step_ms, 3, 1e-3);
}

TEST_F(PlannerStatsTest, TimeWithoutRequestsIsNotHostTime) {
  absl::Time now = absl::UnixEpoch();
  InProcessProposers none;
  const std::unique_ptr<Engine> engine = MakeEngine(none, {.now = [&now] { return now += absl::Microseconds(1); }});
  for (int round = 0; round < 2; ++round) {
    now += absl::Hours(1);
    ASSERT_TRUE(engine->Submit(engine->Reserve().value(), Request("import os\n", 0)).ok());
    while (engine->Step()) continue;
  }
  EXPECT_GT(engine->GetStats().times.host_ms, 0);
  EXPECT_LT(engine->GetStats().times.host_ms, 1);
}

TEST(CountHistogram, BucketsEndAtPowersOfTwo) {
  CountHistogram histogram;
  for (const int32_t count : {0, 1, 2, 3, 4, 5, 1024, 1025, 5000}) histogram.Add(count);
  EXPECT_THAT(histogram.buckets, ::testing::ElementsAre(1, 1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1, 2));
  EXPECT_EQ(histogram.sum, 7064);
  EXPECT_EQ(CountHistogram::Bound(0), 0);
  EXPECT_EQ(CountHistogram::Bound(1), 1);
  EXPECT_EQ(CountHistogram::Bound(11), 1024);
}

}  // namespace
}  // namespace foretoken::verifier
