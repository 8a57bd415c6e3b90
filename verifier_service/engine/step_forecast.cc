// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/step_forecast.h"

#include <numeric>

#include "verifier_service/engine/tree_batch.h"
#include "verifier_service/planner/step_cost.h"

namespace foretoken::verifier {

float ExpectedTokens(const PlannedSequence& planned) {
  const std::span<const float> chances = planned.path_chances;
  float expected = 1;
  if (planned.rule() == kernels::VerificationRule::kRejectionSampling) {  // by rank
    const std::span<const float> taken = chances.first(std::min(chances.size(), planned.row_node_idx.size()));
    return std::accumulate(taken.begin(), taken.end(), expected);
  }
  for (const int32_t node : planned.row_node_idx) expected += chances[node];
  return expected;
}

StepLoad ContextLoadOf(std::span<const PlannedSequence> plan) {
  StepLoad load;
  for (const PlannedSequence& planned : plan) {
    load.num_rows += planned.num_chain;
    load.num_positions += int64_t{planned.num_chain} * (planned.sequence->num_computed + planned.num_chain / 2);
  }
  return load;
}

StepLoad LoadOf(std::span<const PlannedSequence> plan) {
  StepLoad load = ContextLoadOf(plan);
  for (const PlannedSequence& planned : plan) {
    const int32_t num_nodes = planned.tree.num_nodes();
    load.num_rows += num_nodes;
    load.num_positions += int64_t{num_nodes} * planned.sequence->num_computed;
  }
  return load;
}

StepForecast Forecast(std::span<const PlannedSequence> plan, const StepCost& cost) {
  StepForecast forecast{.num_sequences = static_cast<int32_t>(plan.size())};
  for (const PlannedSequence& planned : plan) {
    const int32_t num_nodes = planned.tree.num_nodes();
    forecast.num_rows += planned.num_chain + num_nodes;
    forecast.num_tree_rows += num_nodes;
    if (!planned.sequence->decodes()) forecast.num_prompt_rows += planned.num_chain;
    if (planned.guess != nullptr) forecast.num_offered_nodes += planned.guess->num_nodes();
    if (!planned.draws()) continue;
    ++forecast.num_emitting;
    forecast.expected_tokens += ExpectedTokens(planned);
  }
  forecast.step_ms = cost.Predict(LoadOf(plan));
  forecast.step_ms_without_trees = cost.Predict(ContextLoadOf(plan));
  return forecast;
}

}  // namespace foretoken::verifier
