// SPDX-License-Identifier: Apache-2.0
// What the planner did and what it knows, in counters since the start and in gauges: what a dashboard needs to see
// whether guesses pay, whether the planner's expectations come true, and what rows cost it.
//
// The engine copies it once a step, so it is small and its vectors keep their size.
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

// How often a count was 0, 1, 2, up to 4, up to 8 and so on.
struct CountHistogram {
  static constexpr size_t kNumBounds = 12;  // 0, then 1 to 1,024
  static constexpr double Bound(size_t bucket) { return bucket == 0 ? 0 : static_cast<double>(1 << (bucket - 1)); }

  void Add(int32_t count) {
    const auto bucket = count == 0 ? 0 : std::bit_width(static_cast<uint32_t>(count - 1)) + 1;
    ++buckets[std::min<size_t>(bucket, kNumBounds)];
    sum += static_cast<uint64_t>(count);
  }

  std::array<uint64_t, kNumBounds + 1> buckets = {};  // counts up to Bound(bucket); the last holds all above
  uint64_t sum = 0;
};

// What a step of so many rows takes, as the planner has learned.
struct RowCost {
  int32_t num_rows = 0;
  float step_ms = 0;
};

struct PlannerStats {
  uint64_t num_tree_steps = 0;     // steps with a tree node in them
  uint64_t num_curious_steps = 0;  // steps that took more rows than would pay, to learn
  uint64_t num_waits = 0;          // for proposers
  uint64_t num_offered_nodes = 0;  // of all trees, step by step
  uint64_t num_planned_nodes = 0;  // of those, given a row
  uint64_t num_accepted_nodes = 0;
  double expected_tokens = 0;  // of all steps; compare EngineStats::num_generated_tokens
  CountHistogram step_rows;
  CountHistogram sequence_nodes;      // planned, of each sequence that draws
  double gain_tokens = 0;             // what guesses win a sequence per step, lately
  std::vector<RowCost> row_costs;     // at 1, 2, 4 and so on rows, and the most that a step can have
  std::vector<ChanceCounts> chances;  // by proposer
  uint32_t asked_proposers = 0;       // in the coming step: a bit per proposer
  uint64_t num_trials = 0;            // of another set of proposers than the one that is asked
  double last_trial_speedup = 1;      // of the last one: the speed of the tried set by that of the asked one

  explicit PlannerStats(int32_t max_step_rows = 1);
};

// Counts a step; it is committed, its outputs are not taken yet.
void CountStep(const StepForecast& forecast, std::span<const PlannedSequence> plan, PlannerStats* stats);
void UpdateRowCosts(const StepCost& cost, PlannerStats* stats);

}  // namespace foretoken::verifier
