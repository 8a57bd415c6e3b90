// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/step_forecast.h"

#include <algorithm>
#include <numeric>

namespace foretoken::verifier {

float ExpectedTokens(const PlannedSequence& planned) {
  float expected = 1;
  if (const auto* tested = std::get_if<TestedChoice>(&planned.tree.choice)) {
    const std::span<const float> chances = tested->place_chances;
    const std::span<const float> taken = chances.first(std::min(chances.size(), planned.tree.row_node_idx.size()));
    return std::accumulate(taken.begin(), taken.end(), expected);
  }
  const std::vector<float>& chances = std::get<KeyedChoice>(planned.tree.choice).path_chances;
  for (const int32_t node : planned.tree.row_node_idx) expected += chances[node];
  return expected;
}

StepForecast Forecast(std::span<const PlannedSequence> plan, const StepPolicy& policy, const StepCost& cost) {
  StepForecast forecast{.num_sequences = static_cast<int32_t>(plan.size()),
                        .between_ms = static_cast<float>(policy.between_ms),
                        .between_ms_without_waits = static_cast<float>(policy.between_ms_without_waits),
                        .is_curious = policy.is_curious};
  for (const PlannedSequence& planned : plan) {
    const int32_t num_nodes = planned.tree.rows.num_nodes();
    forecast.num_rows += planned.num_chain + num_nodes;
    forecast.num_tree_rows += num_nodes;
    if (planned.sequence->decodes()) {
      ++forecast.num_decoding;
    } else {
      forecast.num_prompt_rows += planned.num_chain;
    }
    if (planned.tree.guess != nullptr) forecast.num_offered_nodes += planned.tree.guess->num_nodes();
    if (!planned.draws()) continue;
    ++forecast.num_emitting;
    forecast.expected_tokens += ExpectedTokens(planned);
  }
  forecast.step_ms = cost.Predict(LoadOf(plan));
  forecast.step_ms_without_trees = cost.Predict(ContextLoadOf(plan));
  forecast.prompt_ms = PromptMs(plan, cost);
  return forecast;
}

}  // namespace foretoken::verifier
