// SPDX-License-Identifier: Apache-2.0
// The flat batches that a plan becomes: rows for the forward pass, trees for the draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/forward_batch.h"
#include "common/speculation/tested_tree.h"
#include "kernels/ops.h"
#include "verifier_service/engine/step_plan.h"

namespace foretoken::verifier {

// Rows whose next token is known, because it is part of the prompt, and wanted with its log-probability.
struct PromptScore {
  size_t planned_idx = 0;
  int32_t first_logit_row = 0;
  std::span<const int32_t> token_ids;
  int32_t num_top = 0;  // how many of the most likely tokens are wanted beside it
};

// Spans point into the plan's sequences and into the batch's own vectors, which do not grow any more. The batch may be
// moved; the plan and its sequences outlive it.
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
