// SPDX-License-Identifier: Apache-2.0
// What the planner expects of a step that it has planned. Made before the step runs, because the step teaches the cost
// curve that the expectation comes from.
#pragma once

#include <cstdint>
#include <span>

#include "verifier_service/planner/step_cost.h"

namespace foretoken::verifier {

struct PlannedSequence;

struct StepForecast {
  int32_t num_sequences = 0;
  int32_t num_emitting = 0;  // sequences that draw: without trees the step would emit so many tokens
  int32_t num_rows = 0;
  int32_t num_prompt_rows = 0;
  int32_t num_tree_rows = 0;
  int32_t num_offered_nodes = 0;  // of all trees there were
  double expected_tokens = 0;     // of all sequences
  float step_ms = 0;              // the forward pass and the draw
  float step_ms_without_trees = 0;
  float between_ms = 0;     // what passes between two steps, whatever they compute
  bool is_curious = false;  // it takes more rows than would pay, to learn
};

// What a step computes: of its sequences' own tokens, and with its tree nodes.
StepLoad ContextLoadOf(std::span<const PlannedSequence> plan);
StepLoad LoadOf(std::span<const PlannedSequence> plan);

StepForecast Forecast(std::span<const PlannedSequence> plan, const StepCost& cost);

// How many tokens a sequence that draws is expected to emit: 1 and the path chances of its nodes with rows.
float ExpectedTokens(const PlannedSequence& planned);

}  // namespace foretoken::verifier
