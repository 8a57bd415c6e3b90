// SPDX-License-Identifier: Apache-2.0
// Converts a plan to flat batches: rows for the forward pass, and trees for the draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/forward_batch.h"
#include "common/speculation/tested_tree.h"
#include "kernels/ops.h"
#include "verifier_service/engine/step_plan.h"

namespace foretoken::verifier {

// Rows of a prompt whose next token is a prompt token too. The request asks for the log-probability of that next token.
struct PromptScore {
  size_t planned_idx = 0;
  int32_t first_logit_row = 0;
  std::span<const int32_t> token_ids;
  int32_t num_top = 0;  // the number of most likely tokens to report at each position
};

// Its spans point into the plan's sequences and into its own vectors, which no longer grow. The batch may be moved. The
// plan and its sequences outlive the batch.
struct TreeBatch {
  model::ForwardBatch forward;
  std::vector<kernels::TreeToAccept> trees;
  std::vector<size_t> planned_idx;  // [trees] index in the plan
  std::vector<PromptScore> prompt_scores;

  std::vector<int32_t> node_token_ids;  // storage of trees[].token_ids: tree by tree, each root first
  std::vector<int32_t> node_parents;
  std::vector<TestedTree> tested;           // storage of trees[].drawn, for trees under rejection sampling
  std::vector<const uint32_t*> node_masks;  // storage of trees[].masks, for trees with masks
};

TreeBatch BuildTreeBatch(std::span<const PlannedSequence> plan);

}  // namespace foretoken::verifier
