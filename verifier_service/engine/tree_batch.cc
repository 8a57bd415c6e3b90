// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/tree_batch.h"

#include <algorithm>
#include <utility>

namespace foretoken::verifier {
namespace {

// Adds logit rows for the prompt tokens that this chunk scores. The row of token p scores token p + 1.
void AddPromptScores(const PlannedSequence& planned, size_t planned_idx, int32_t first_row, TreeBatch* batch) {
  const Sequence& sequence = *planned.sequence;
  const auto num_prompt = static_cast<int32_t>(sequence.request().prompt.size());
  if (!sequence.request().output.num_prompt_logprobs.has_value() || sequence.prompt_reported) return;
  const int32_t begin = std::max(sequence.num_computed, static_cast<int32_t>(sequence.prompt_logprobs.size()));
  const int32_t end = std::min(sequence.num_computed + planned.num_chain, num_prompt - 1);
  if (begin >= end) return;
  batch->prompt_scores.push_back(
      {.planned_idx = planned_idx,
       .first_logit_row = static_cast<int32_t>(batch->forward.logit_rows.size()),
       .token_ids = std::span(sequence.token_ids).subspan(begin + 1, static_cast<size_t>(end - begin)),
       .num_top = *sequence.request().output.num_prompt_logprobs});
  for (int32_t position = begin; position < end; ++position) {
    batch->forward.logit_rows.push_back(first_row + position - sequence.num_computed);
  }
}

// Adds the masks of a tree's rows. The mask depends on the number of generated tokens before the drawn token, which
// follows from the row's position. A node without a row draws nothing and gets a null mask.
void AddMasks(const Sequence& sequence, int32_t root_row, size_t num_rows, size_t num_nodes, TreeBatch* batch) {
  if (sequence.grammar.has_value()) {  // the step makes its masks while the device computes
    batch->node_masks.resize(batch->node_masks.size() + num_nodes, nullptr);
    return;
  }
  const DrawMasks& masks = sequence.active->masks;
  if (masks.At(sequence.num_generated()) == nullptr) return;  // then deeper rows have no mask either
  const size_t first_node = batch->node_masks.size();
  const auto num_prompt = static_cast<int32_t>(sequence.request().prompt.size());
  for (size_t node = 0; node < num_rows; ++node) {
    batch->node_masks.push_back(masks.At(batch->forward.positions[root_row + node] + 1 - num_prompt));
  }
  batch->node_masks.resize(first_node + num_nodes, nullptr);
}

// Adds the root and the nodes to verify.
void AddNodes(const PlannedSequence& planned, TreeBatch* batch) {
  batch->node_token_ids.push_back(planned.sequence->token_ids.back());
  batch->node_parents.push_back(-1);
  for (const speculation::TreeNode& node : planned.tree.rows.nodes) {
    batch->node_token_ids.push_back(node.token_id);
    batch->node_parents.push_back(node.parent + 1);  // kRootParent becomes node 0
  }
}

// Adds the root, the nodes with rows, and the children that are tested without a row.
void AddTestedNodes(const PlannedSequence& planned, TreeBatch* batch) {
  const TestedTree& tested = batch->tested.emplace_back(
      MakeTestedTree(planned.sequence->token_ids.back(), planned.tree.guess, planned.tree.row_node_idx));
  batch->node_token_ids.insert(batch->node_token_ids.end(), tested.token_ids.begin(), tested.token_ids.end());
  batch->node_parents.insert(batch->node_parents.end(), tested.parents.begin(), tested.parents.end());
}

// The indices at which a tree's nodes and masks begin in the batch's vectors.
struct TreeStart {
  size_t node = 0, mask = 0;
};

TreeStart AddTree(const PlannedSequence& planned, size_t planned_idx, int32_t root_row, TreeBatch* batch) {
  const TreeStart start = {.node = batch->node_token_ids.size(), .mask = batch->node_masks.size()};
  const Sequence& sequence = *planned.sequence;
  const GenerationRequest& request = sequence.request();
  const bool is_rejection = planned.rule() == kernels::VerificationRule::kRejectionSampling;
  is_rejection ? AddTestedNodes(planned, batch) : AddNodes(planned, batch);
  const int32_t num_rows = planned.tree.rows.num_nodes() + 1;
  const auto first_logit_row = static_cast<int32_t>(batch->forward.logit_rows.size());
  for (int32_t row = 0; row < num_rows; ++row) batch->forward.logit_rows.push_back(root_row + row);
  AddMasks(sequence, root_row, static_cast<size_t>(num_rows), batch->node_token_ids.size() - start.node, batch);
  batch->planned_idx.push_back(planned_idx);
  batch->trees.push_back({.first_logit_row = first_logit_row,
                          .context_len = static_cast<uint32_t>(sequence.size()),
                          .sampling = sequence.sampling,
                          .counts = sequence.counts.counts(),
                          .bias = request.logit_bias,
                          .num_top_logprobs = request.output.num_logprobs,
                          .rule = planned.rule(),
                          .num_rows = num_rows});
  return start;
}

// Sets the spans of all trees. Called after the last tree is added, because vectors that grow move.
void PointTreesAtNodes(std::span<const TreeStart> starts, TreeBatch* batch) {
  const TreeStart end = {.node = batch->node_token_ids.size(), .mask = batch->node_masks.size()};
  auto tested = batch->tested.begin();
  for (size_t i = 0; i < starts.size(); ++i) {
    const TreeStart& next = i + 1 < starts.size() ? starts[i + 1] : end;
    const size_t num_nodes = next.node - starts[i].node;
    kernels::TreeToAccept& tree = batch->trees[i];
    tree.token_ids = std::span(batch->node_token_ids).subspan(starts[i].node, num_nodes);
    tree.parents = std::span(batch->node_parents).subspan(starts[i].node, num_nodes);
    tree.masks = std::span(batch->node_masks).subspan(starts[i].mask, next.mask - starts[i].mask);
    if (tree.rule == kernels::VerificationRule::kRejectionSampling) tree.drawn = (tested++)->groups;
  }
}

void Reserve(std::span<const PlannedSequence> plan, model::ForwardBatch* forward) {
  size_t num_rows = 0, num_blocks = 0;
  for (const PlannedSequence& planned : plan) {
    num_rows += static_cast<size_t>(planned.num_chain) + planned.tree.rows.nodes.size();
    num_blocks += planned.sequence->blocks.size();
  }
  for (std::vector<int32_t>* of_rows : {&forward->token_ids, &forward->positions, &forward->slots, &forward->chain_lens,
                                        &forward->ancestor_begins, &forward->logit_rows}) {
    of_rows->reserve(num_rows + 1);
  }
  forward->block_tables.reserve(num_blocks);
}

}  // namespace

TreeBatch BuildTreeBatch(std::span<const PlannedSequence> plan) {
  TreeBatch batch;
  Reserve(plan, &batch.forward);
  std::vector<TreeStart> starts;
  std::vector<int32_t> tree_token_ids, tree_parents;
  for (size_t i = 0; i < plan.size(); ++i) {
    const PlannedSequence& planned = plan[i];
    const Sequence& sequence = *planned.sequence;
    tree_token_ids.clear();
    tree_parents.clear();
    for (const speculation::TreeNode& node : planned.tree.rows.nodes) {
      tree_token_ids.push_back(node.token_id);
      tree_parents.push_back(node.parent);
    }
    const int32_t root_row = model::AppendSegment(
        {.block_table = sequence.blocks,
         .first_position = sequence.num_computed,
         .chain = std::span(sequence.token_ids).subspan(sequence.num_computed, static_cast<size_t>(planned.num_chain)),
         .tree_token_ids = tree_token_ids,
         .tree_parents = tree_parents,
         .tree_slots = planned.tree.slots.slots},
        &batch.forward);
    AddPromptScores(planned, i, root_row + 1 - planned.num_chain, &batch);
    if (planned.draws()) starts.push_back(AddTree(planned, i, root_row, &batch));
  }
  PointTreesAtNodes(starts, &batch);
  return batch;
}

}  // namespace foretoken::verifier
