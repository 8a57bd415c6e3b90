// SPDX-License-Identifier: Apache-2.0
// Which tree nodes a step verifies: the idea of the planner, as a pure function.
//
// All sequences' nodes compete. Sorted by path chance, every prefix is a possible step; the one that emits the most
// expected tokens per millisecond wins:  (sequences + sum of path chances) / (step_ms(rows) + what passes between
// steps). When rows are dear or guesses poor the best prefix is empty, and the step is plain decoding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "verifier_service/planner/step_cost.h"

namespace foretoken::verifier {

// One decoding sequence's tree, as far as the choice goes.
struct TreeOffer {
  std::vector<float> path_chances;  // [N] calibrated, in (0, 1]; at most the parent's, which stands before its children
  int32_t max_nodes = 0;            // how many may be taken
  int32_t num_positions = 0;        // of context, that each node's row reads
  bool takes_all = false;           // as many as may be are taken, whatever they cost
};

struct StepBudget {
  StepLoad fixed;            // roots and prompt tokens: they are computed anyway
  int32_t max_rows = 0;      // of the step
  int32_t num_emitting = 0;  // sequences that draw a token in any case
  float between_ms = 0;      // what passes between two steps' forward passes, whatever is computed
  // Take nodes up to the next row count of which the cost is not known, so that a bad memory of it does not last.
  bool is_curious = false;
};

// The chosen nodes' indices, of every offer, ascending: a parent is always chosen with its child.
std::vector<std::vector<int32_t>> ChooseNodes(std::span<const TreeOffer> offers, const StepBudget& budget,
                                              const StepCost& cost);

}  // namespace foretoken::verifier
