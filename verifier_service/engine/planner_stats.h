// SPDX-License-Identifier: Apache-2.0
// Counters and gauges of the planner. They show whether guesses pay, whether the planner's expectations come true, and
// the learned cost of rows.
//
// The engine copies PlannerStats once per step, so the struct is small and its vectors keep their size.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "verifier_service/engine/step_plan.h"
#include "verifier_service/planner/calibration.h"

namespace foretoken::verifier {

// A histogram of counts. Its buckets end at 0, 1, 2, 4, 8 and so on.
struct CountHistogram {
  static constexpr size_t kNumBounds = 12;  // 0, then 1 to 1,024
  static constexpr double Bound(size_t bucket) { return bucket == 0 ? 0 : static_cast<double>(1 << (bucket - 1)); }

  void Add(int32_t count) {
    const auto bucket = count == 0 ? 0 : std::bit_width(static_cast<uint32_t>(count - 1)) + 1;
    ++buckets[std::min<size_t>(bucket, kNumBounds)];
    sum += static_cast<uint64_t>(count);
  }

  std::array<uint64_t, kNumBounds + 1> buckets = {};  // [i]: counts up to Bound(i); last: above all bounds
  uint64_t sum = 0;
};

// The learned time of a step with this number of rows.
struct RowCost {
  int32_t num_rows = 0;
  float step_ms = 0;
};

struct PlannerStats {
  uint64_t num_tree_steps = 0;     // steps with at least one tree node
  uint64_t num_curious_steps = 0;  // steps that may take more rows than would pay, to learn
  uint64_t num_waits = 0;          // steps that wait for proposers if an answer is due
  uint64_t num_offered_nodes = 0;  // nodes of all trees, summed over steps
  uint64_t num_planned_nodes = 0;  // offered nodes that got a row
  uint64_t num_accepted_nodes = 0;
  double expected_tokens = 0;  // sum over all steps; compare EngineStats::num_generated_tokens
  double decode_ms = 0;        // of the steps without prompt rows
  double plain_decode_ms = 0;  // forecast: how long the same tokens would have taken without trees
  CountHistogram step_rows;
  CountHistogram sequence_nodes;      // planned nodes of each sequence that draws
  double gain_tokens = 0;             // tokens per sequence and step that guesses win, a moving mean
  std::vector<RowCost> row_costs;     // at 1, 2, 4, ... rows, and at the largest number of rows
  std::vector<ChanceCounts> chances;  // [proposers]
  uint32_t asked_proposers = 0;       // bit per proposer that the next step asks
  uint64_t num_trials = 0;            // comparisons of the asked set of proposers with another set
  double last_trial_speedup = 1;      // speed of the tried set, divided by the speed of the asked set

  explicit PlannerStats(int32_t max_step_rows = 1);
};

// Counts a step that is committed. The sequences still hold their outputs.
void CountStep(const StepForecast& forecast, std::span<const PlannedSequence> plan, PlannerStats* stats);
// Compares the time of a step that emitted this many tokens with the forecast for plain decoding.
void CountTimes(const StepForecast& forecast, const StepTimes& times, int32_t num_emitted, PlannerStats* stats);
void UpdateRowCosts(const StepCost& cost, PlannerStats* stats);

}  // namespace foretoken::verifier
