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
#include "verifier_service/planner/prompt_rows.h"
#include "verifier_service/planner/rank_chances.h"
#include "verifier_service/planner/speculation_policy.h"
#include "verifier_service/planner/step_cost.h"

namespace foretoken::verifier {

// The merged tree of one decoding sequence, at its position; null: nothing was guessed. The tree stays where it is
// until the next step gathers.
struct Guess {
  Sequence* sequence = nullptr;
  const speculation::TokenTree* tree = nullptr;
};

// How the rows of a tree were chosen under the keyed draw: by the chances of its nodes.
struct KeyedChoice {
  std::vector<float> path_chances;  // of the guess's nodes, calibrated
};

// How they were chosen under rejection sampling: by rank alone, before the guess was read (rank_chances.h).
struct TestedChoice {
  std::vector<float> rank_chances;
  int32_t row_budget = 0;              // how many nodes were to have rows
  std::vector<int32_t> best_node_idx;  // of the guess, best first; at most one more than have rows
};

struct PlannedTree {
  const speculation::TokenTree* guess = nullptr;  // null: nothing was guessed
  speculation::TokenTree rows;                    // the nodes of the guess that get a row
  std::vector<int32_t> row_node_idx;              // their indices in the guess, ascending
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
  // How many nodes were to have rows; under rejection sampling this does not depend on the guess.
  float NumNodesPlanned() const;
};

// What past steps have taught the planner.
struct Experience {
  StepCost step_cost;
  Calibration calibration;   // of sequences under the keyed draw
  RankChances rank_chances;  // of rejection-sampled ones
};

struct StepLimits {
  int32_t max_rows = 0;  // of the step
  PromptLimits prompts;
};

// `guesses` has every running sequence that decodes. Prompts of the others follow, as far as there is room for them.
// The plan's trees hold slots of the scheduler until they are given back.
std::vector<PlannedSequence> PlanStep(std::span<const Guess> guesses, const StepPolicy& policy,
                                      const Experience& experience, const StepLimits& limits, Scheduler& scheduler);

// What a step computes: of its sequences' own tokens, and with its tree nodes.
StepLoad ContextLoadOf(std::span<const PlannedSequence> plan);
StepLoad LoadOf(std::span<const PlannedSequence> plan);

}  // namespace foretoken::verifier
