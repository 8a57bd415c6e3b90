// SPDX-License-Identifier: Apache-2.0
// Chooses the tree nodes that a step verifies. A pure function.
//
// The nodes of all sequences compete. The planner sorts them by path chance. Every prefix of the sorted nodes is a
// possible step, and the planner takes the prefix with the most expected tokens per millisecond:
//   (sequences + sum of path chances) / (step_ms(rows) + time between steps + time of the host for the nodes)
// If rows are expensive or guesses are poor, the best prefix is empty, and the step is plain decoding. The time of
// prompts in the step is left out, because it passes once, whatever the number of steps that tokens take. With it a
// node would look cheap in every step that has prompts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "verifier_service/planner/step_cost.h"

namespace foretoken::verifier {

// The parts of one decoding sequence's tree that the choice depends on.
struct TreeOffer {
  std::vector<float> path_chances;  // [N] calibrated, in (0, 1], at most the parent's; parents come first
  int32_t max_nodes = 0;            // the most nodes that the step may verify
  int32_t num_positions = 0;        // context positions that each node's row reads
  float node_ms = 0;                // time of the host for each node, besides its row: for its mask
  bool takes_all = false;           // take as many nodes as allowed, at any cost
};

struct StepBudget {
  StepLoad fixed;            // roots and prompt tokens, which the step computes anyway
  int32_t max_rows = 0;      // of the step
  int32_t num_decoding = 0;  // sequences that decode: each draws a token with or without a tree
  float prompt_ms = 0;       // by how much prompts make the step longer, of the predicted time of `fixed`
  float between_ms = 0;      // time between two forward passes, independent of their rows
  // Take nodes up to the next cost bucket, so that a wrong cost there is measured again.
  bool is_curious = false;
};

// Returns the chosen nodes' indices of every offer, ascending. A chosen node's parent is always chosen.
std::vector<std::vector<int32_t>> ChooseNodes(std::span<const TreeOffer> offers, const StepBudget& budget,
                                              const StepCost& cost);

}  // namespace foretoken::verifier
