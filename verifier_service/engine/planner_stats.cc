// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/planner_stats.h"

#include "verifier_service/planner/step_cost.h"

namespace foretoken::verifier {

PlannerStats::PlannerStats(int32_t max_step_rows) {
  for (int32_t rows = 1; rows < max_step_rows; rows *= 2) row_costs.push_back({.num_rows = rows});
  row_costs.push_back({.num_rows = max_step_rows});
}

void CountStep(const StepForecast& forecast, std::span<const PlannedSequence> plan, PlannerStats* stats) {
  if (forecast.num_tree_rows > 0) ++stats->num_tree_steps;
  if (forecast.is_curious) ++stats->num_curious_steps;
  stats->num_offered_nodes += static_cast<uint64_t>(forecast.num_offered_nodes);
  stats->num_planned_nodes += static_cast<uint64_t>(forecast.num_tree_rows);
  stats->expected_tokens += forecast.expected_tokens;
  stats->step_rows.Add(forecast.num_rows);
  for (const PlannedSequence& planned : plan) {
    const std::vector<bool>& speculated = planned.sequence->output.speculated;
    if (speculated.empty()) continue;  // the step computed a chunk of the prompt and drew nothing
    stats->sequence_nodes.Add(planned.tree.rows.num_nodes());
    stats->num_accepted_nodes += static_cast<uint64_t>(std::count(speculated.begin(), speculated.end(), true));
  }
}

void CountTimes(const StepForecast& forecast, const StepTimes& times, int32_t num_emitted, PlannerStats* stats) {
  if (forecast.num_prompt_rows > 0 || forecast.num_emitting == 0) return;  // plain decoding computes prompts, too
  stats->decode_ms += times.forward_ms + times.draw_ms + times.host_ms + times.wait_ms;
  const double tokens_per_sequence = static_cast<double>(num_emitted) / forecast.num_emitting;
  stats->plain_decode_ms += (forecast.step_ms_without_trees + forecast.between_ms_without_waits) * tokens_per_sequence;
}

void UpdateRowCosts(const StepCost& cost, PlannerStats* stats) {
  for (RowCost& row_cost : stats->row_costs) row_cost.step_ms = cost.Predict({.num_rows = row_cost.num_rows});
}

}  // namespace foretoken::verifier
