// SPDX-License-Identifier: Apache-2.0
// Which tree nodes a step verifies: the idea of the planner, as a pure function.
//
// All sequences' nodes compete. Sorted by path chance, every prefix is a possible step; the one that emits the most
// expected tokens per millisecond wins:  (sequences + sum of path chances) / step_ms(rows).  When rows are dear or
// guesses poor the best prefix is empty, and the step is plain decoding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "verifier_service/step_cost.h"

namespace foretoken::verifier {

// One decoding sequence's tree, as far as the choice goes.
struct TreeOffer {
  std::vector<float> path_chances;  // [N] calibrated; a node's is at most its parent's, which stands before it
  int32_t max_nodes = 0;            // how many may be taken
};

struct RowBudget {
  int32_t num_fixed_rows = 0;  // roots and prompt tokens: they are computed anyway
  int32_t max_rows = 0;        // of the step
  int32_t num_emitting = 0;    // sequences that draw a token in any case
  // Take nodes up to the next row count of which the cost is not known, so that a bad memory of it does not last.
  bool is_curious = false;
};

// The chosen node indices of every offer, ascending: a parent is always chosen with its child.
std::vector<std::vector<int32_t>> ChooseNodes(std::span<const TreeOffer> offers, const RowBudget& budget,
                                              const StepCost& cost);

// How many prompt rows a step may take beside `num_decoding_rows`, so that it lasts at most `max_growth` times as long
// as without them. With nobody decoding all of `max_rows`. At least one, so that every prompt ends.
int32_t PromptRows(int32_t num_decoding_rows, int32_t max_rows, float max_growth, const StepCost& cost);

}  // namespace foretoken::verifier
