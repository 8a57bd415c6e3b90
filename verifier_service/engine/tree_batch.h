// SPDX-License-Identifier: Apache-2.0
// What a step computes, and the flat batches made of it: rows for the forward pass, trees for the draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/forward_batch.h"
#include "common/speculation/tested_tree.h"
#include "common/speculation/token_tree.h"
#include "kernels/ops.h"
#include "verifier_service/engine/scheduler.h"
#include "verifier_service/engine/sequence.h"

namespace foretoken::verifier {

// One sequence's part of a step: the next num_chain tokens of its context, and a tree below the last of them.
struct PlannedSequence {
  Sequence* sequence = nullptr;
  int32_t num_chain = 0;
  const speculation::TokenTree* guess = nullptr;  // all that was guessed; null: nothing
  speculation::TokenTree tree;                    // of it, the nodes to verify
  std::vector<int32_t> row_node_idx;              // of the guess, ascending: tree's nodes
  std::vector<float> path_chances;                // as the planner had them: of the guess's nodes, or of ranks
  Scheduler::TreeSlots tree_slots;
  // Rejection sampling:
  int32_t row_budget = 0;              // how many nodes were to have rows, before the guess was read
  std::vector<int32_t> best_node_idx;  // of the guess, best first; at most one more than have rows
  // Once the step has ended:
  int32_t num_committed = 0;  // tokens

  kernels::VerificationRule rule() const { return sequence->request().verification; }
  // How many nodes were to have rows; under rejection sampling whatever the guess had.
  float NumNodesPlanned() const {
    const bool is_tested = rule() == kernels::VerificationRule::kRejectionSampling;
    return static_cast<float>(is_tested ? row_budget : tree.num_nodes());
  }
  std::span<const int32_t> committed() const {
    return std::span<const int32_t>(sequence->token_ids).last(static_cast<size_t>(num_committed));
  }
  bool draws() const { return sequence->num_computed + num_chain == sequence->size(); }
};

// Rows whose next token is known, because it is part of the prompt, and wanted with its log-probability.
struct PromptScore {
  size_t planned_idx = 0;
  int32_t first_logit_row = 0;
  std::span<const int32_t> token_ids;
  int32_t num_top = 0;  // how many of the most likely tokens are wanted beside it
};

// Spans point into the plan's sequences and into the batch itself; both must outlive it unmoved.
struct TreeBatch {
  model::ForwardBatch forward;
  std::vector<kernels::TreeToAccept> trees;
  std::vector<size_t> planned_idx;  // of each tree
  std::vector<PromptScore> prompt_scores;

  std::vector<int32_t> node_token_ids;  // behind trees[].token_ids, tree by tree, each with its root first
  std::vector<int32_t> node_parents;
  std::vector<TestedTree> tested;           // behind them and trees[].drawn under rejection sampling
  std::vector<const uint32_t*> node_masks;  // behind trees[].masks: of the trees that have any
};

TreeBatch BuildTreeBatch(std::span<const PlannedSequence> plan);

}  // namespace foretoken::verifier
