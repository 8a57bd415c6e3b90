// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/tree_batch.h"

#include <algorithm>
#include <utility>

namespace foretoken::verifier {
namespace {

// Logit rows for the prompt tokens of this chunk that are not scored yet. Row p tells of token p + 1.
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

// The masks of a tree's rows, whose positions tell how many tokens stand before what they draw. Nodes without a row
// draw nothing.
std::span<const uint32_t* const> AddMasks(const Sequence& sequence, int32_t root_row, size_t num_rows, size_t num_nodes,
                                          TreeBatch* batch) {
  const DrawMasks& masks = sequence.active->masks;
  if (masks.At(sequence.num_generated()) == nullptr) return {};  // nor has a deeper row one
  const size_t first_node = batch->node_masks.size();
  const auto num_prompt = static_cast<int32_t>(sequence.request().prompt.size());
  for (size_t node = 0; node < num_rows; ++node) {
    batch->node_masks.push_back(masks.At(batch->forward.positions[root_row + node] + 1 - num_prompt));
  }
  batch->node_masks.resize(first_node + num_nodes, nullptr);
  return std::span(batch->node_masks).subspan(first_node, num_nodes);
}

struct TreeNodes {
  std::span<const int32_t> token_ids;
  std::span<const int32_t> parents;
};

// The root and the nodes to verify.
TreeNodes AddNodes(const PlannedSequence& planned, TreeBatch* batch) {
  const size_t first_node = batch->node_token_ids.size();
  batch->node_token_ids.push_back(planned.sequence->token_ids.back());
  batch->node_parents.push_back(-1);
  for (const speculation::TreeNode& node : planned.tree.nodes) {
    batch->node_token_ids.push_back(node.token_id);
    batch->node_parents.push_back(node.parent + 1);  // kRootParent becomes node 0
  }
  return {.token_ids = std::span(batch->node_token_ids).subspan(first_node),
          .parents = std::span(batch->node_parents).subspan(first_node)};
}

// Those, and the children that are tested without a row.
TreeNodes AddTestedNodes(const PlannedSequence& planned, TreeBatch* batch) {
  const TestedTree& tested = batch->tested.emplace_back(
      MakeTestedTree(planned.sequence->token_ids.back(), planned.guess, planned.row_node_idx));
  return {.token_ids = tested.token_ids, .parents = tested.parents};
}

void AddTree(const PlannedSequence& planned, size_t planned_idx, int32_t root_row, TreeBatch* batch) {
  const Sequence& sequence = *planned.sequence;
  const GenerationRequest& request = sequence.request();
  const bool is_rejection = planned.rule() == kernels::VerificationRule::kRejectionSampling;
  const TreeNodes nodes = is_rejection ? AddTestedNodes(planned, batch) : AddNodes(planned, batch);
  const int32_t num_rows = planned.tree.num_nodes() + 1;
  const auto first_logit_row = static_cast<int32_t>(batch->forward.logit_rows.size());
  for (int32_t row = 0; row < num_rows; ++row) batch->forward.logit_rows.push_back(root_row + row);
  const std::span<const uint32_t* const> masks =
      AddMasks(sequence, root_row, static_cast<size_t>(num_rows), nodes.token_ids.size(), batch);
  batch->planned_idx.push_back(planned_idx);
  kernels::TreeToAccept& tree = batch->trees.emplace_back();
  tree = {.first_logit_row = first_logit_row,
          .token_ids = nodes.token_ids,
          .parents = nodes.parents,
          .context_len = static_cast<uint32_t>(sequence.size()),
          .sampling = sequence.sampling,
          .counts = sequence.counts.counts(),
          .bias = request.logit_bias,
          .masks = masks,
          .num_top_logprobs = request.output.num_logprobs,
          .rule = planned.rule(),
          .num_rows = num_rows};
  if (is_rejection) tree.drawn = batch->tested.back().groups;
}

void Reserve(std::span<const PlannedSequence> plan, TreeBatch* batch) {
  size_t num_rows = 0, num_blocks = 0, num_nodes = 0;
  bool has_masks = false;
  for (const PlannedSequence& planned : plan) {
    num_rows += static_cast<size_t>(planned.num_chain) + planned.tree.nodes.size();
    num_blocks += planned.sequence->blocks.size();
    const bool tests_all = planned.rule() == kernels::VerificationRule::kRejectionSampling && planned.guess != nullptr;
    num_nodes += 1 + (tests_all ? planned.guess : &planned.tree)->nodes.size();
    has_masks = has_masks || planned.sequence->active->masks.At(planned.sequence->num_generated()) != nullptr;
  }
  model::ForwardBatch& forward = batch->forward;
  for (std::vector<int32_t>* of_rows : {&forward.token_ids, &forward.positions, &forward.slots, &forward.chain_lens,
                                        &forward.ancestor_begins, &forward.logit_rows}) {
    of_rows->reserve(num_rows + 1);
  }
  forward.block_tables.reserve(num_blocks);
  batch->trees.reserve(plan.size());
  batch->planned_idx.reserve(plan.size());
  batch->node_token_ids.reserve(num_rows);  // enough: spans into it are taken while it grows
  batch->node_parents.reserve(num_rows);
  if (has_masks) batch->node_masks.reserve(num_nodes);
}

}  // namespace

TreeBatch BuildTreeBatch(std::span<const PlannedSequence> plan) {
  TreeBatch batch;
  Reserve(plan, &batch);
  std::vector<int32_t> tree_token_ids, tree_parents;
  for (size_t i = 0; i < plan.size(); ++i) {
    const PlannedSequence& planned = plan[i];
    const Sequence& sequence = *planned.sequence;
    tree_token_ids.clear();
    tree_parents.clear();
    for (const speculation::TreeNode& node : planned.tree.nodes) {
      tree_token_ids.push_back(node.token_id);
      tree_parents.push_back(node.parent);
    }
    const int32_t root_row = model::AppendSegment(
        {.block_table = sequence.blocks,
         .first_position = sequence.num_computed,
         .chain = std::span(sequence.token_ids).subspan(sequence.num_computed, static_cast<size_t>(planned.num_chain)),
         .tree_token_ids = tree_token_ids,
         .tree_parents = tree_parents,
         .tree_slots = planned.tree_slots.slots},
        &batch.forward);
    AddPromptScores(planned, i, root_row + 1 - planned.num_chain, &batch);
    if (planned.draws()) AddTree(planned, i, root_row, &batch);
  }
  return batch;
}

}  // namespace foretoken::verifier
