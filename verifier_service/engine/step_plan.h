// SPDX-License-Identifier: Apache-2.0
// The plan of a step: which sequences it computes, with how many tokens of their contexts, and which tree nodes.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "common/speculation/token_tree.h"
#include "kernels/ops.h"
#include "verifier_service/engine/scheduler.h"
#include "verifier_service/engine/sequence.h"
#include "verifier_service/planner/calibration.h"
#include "verifier_service/planner/place_chances.h"
#include "verifier_service/planner/prompt_rows.h"
#include "verifier_service/planner/speculation_policy.h"
#include "verifier_service/planner/step_cost.h"

namespace foretoken::verifier {

// The merged tree of one decoding sequence, at the sequence's position. Null if no proposer guessed. The pointer is
// valid until the next step gathers trees.
struct Guess {
  Sequence* sequence = nullptr;
  const speculation::TokenTree* tree = nullptr;
};

// The basis of the choice of rows under the keyed draw: the chances of the nodes.
struct KeyedChoice {
  std::vector<float> path_chances;  // calibrated, one per node of the guess
};

// The basis of the choice under rejection sampling: places alone. Their chances fixed the number of rows before the
// planner read the guess (place_chances.h).
struct TestedChoice {
  std::vector<float> place_chances;
  int32_t row_budget = 0;              // the number of rows, fixed before the guess was read
  std::vector<int32_t> best_node_idx;  // the best nodes of the guess, best first; at most row_budget + 1
};

struct PlannedTree {
  const speculation::TokenTree* guess = nullptr;  // null: no proposer guessed
  speculation::TokenTree rows;                    // the nodes of the guess that get a row
  std::vector<int32_t> row_node_idx;              // the indices of these nodes in the guess, ascending
  Scheduler::TreeSlots slots;
  std::variant<KeyedChoice, TestedChoice> choice;
};

// One sequence's part of a step: the next num_chain tokens of its context, and a tree below the last of them.
struct PlannedSequence {
  Sequence* sequence = nullptr;
  int32_t num_chain = 0;
  PlannedTree tree;

  kernels::VerificationRule rule() const { return sequence->request().verification; }
  bool draws() const { return sequence->num_computed + num_chain == sequence->size(); }
  // The number of nodes with rows. Under rejection sampling it is row_budget instead, which does not depend on the
  // guess.
  float NumNodesPlanned() const;
};

// The planner's estimates, learned from past steps.
struct Experience {
  StepCost step_cost;
  Calibration calibration;     // learned from sequences under the keyed draw
  PlaceChances place_chances;  // learned from sequences under rejection sampling
};

struct StepLimits {
  int32_t max_rows = 0;  // of the step
  PromptLimits prompts;
};

// Plans a step. `guesses` has an entry for every running sequence that decodes in it. The prompts of other sequences
// follow, as far as there is room. The plan's trees hold slots until Scheduler::GiveBack.
std::vector<PlannedSequence> PlanStep(std::span<const Guess> guesses, const StepPolicy& policy,
                                      const Experience& experience, const StepLimits& limits, Scheduler& scheduler);

// The load of a step: ContextLoadOf counts only the sequences' own tokens, and LoadOf counts tree nodes too.
StepLoad ContextLoadOf(std::span<const PlannedSequence> plan);
StepLoad LoadOf(std::span<const PlannedSequence> plan);
// Predicts by how much prompts make a step without tree nodes longer: its whole time if no sequence decodes.
float PromptMs(std::span<const PlannedSequence> plan, const StepCost& cost);

}  // namespace foretoken::verifier
