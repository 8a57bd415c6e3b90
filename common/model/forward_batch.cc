// SPDX-License-Identifier: Apache-2.0
#include "common/model/forward_batch.h"

#include "kernels/check.h"
#include "kernels/ops.h"

namespace foretoken::model {
namespace {

void AppendRow(int32_t token_id, int32_t position, int32_t slot, int32_t chain_len, ForwardBatch* batch) {
  batch->token_ids.push_back(token_id);
  batch->positions.push_back(position);
  batch->slots.push_back(slot);
  batch->chain_lens.push_back(chain_len);
}

void EndSegment(std::span<const int32_t> block_table, ForwardBatch* batch) {
  batch->block_tables.insert(batch->block_tables.end(), block_table.begin(), block_table.end());
  batch->block_table_begins.push_back(static_cast<int32_t>(batch->block_tables.size()));
  batch->segment_begins.push_back(batch->num_rows());
}

}  // namespace

int32_t SlotOf(std::span<const int32_t> block_table, int32_t position) {
  const size_t block_idx = position / kernels::kKvBlockSize;
  FT_CHECK(block_idx < block_table.size());
  return block_table[block_idx] * kernels::kKvBlockSize + position % kernels::kKvBlockSize;
}

int32_t AppendSegment(const Segment& segment, ForwardBatch* batch) {
  FT_CHECK(!segment.chain.empty());
  FT_CHECK(segment.tree_parents.size() == segment.tree_token_ids.size());
  FT_CHECK(segment.tree_slots.size() == segment.tree_token_ids.size());
  for (size_t i = 0; i < segment.chain.size(); ++i) {
    const int32_t position = segment.first_position + static_cast<int32_t>(i);
    AppendRow(segment.chain[i], position, SlotOf(segment.block_table, position), position + 1, batch);
    batch->ancestor_begins.push_back(static_cast<int32_t>(batch->ancestor_slots.size()));
  }
  const int32_t root_row = batch->num_rows() - 1;
  const int32_t chain_len = batch->positions[root_row] + 1;
  for (size_t node = 0; node < segment.tree_token_ids.size(); ++node) {
    const int32_t parent = segment.tree_parents[node];
    FT_CHECK(parent < static_cast<int32_t>(node));
    if (parent >= 0) {  // the parent's list, then the node's own slot
      const int32_t parent_row = root_row + 1 + parent;
      for (int32_t i = batch->ancestor_begins[parent_row]; i < batch->ancestor_begins[parent_row + 1]; ++i) {
        batch->ancestor_slots.push_back(batch->ancestor_slots[i]);
      }
    }
    batch->ancestor_slots.push_back(segment.tree_slots[node]);
    const int32_t depth = static_cast<int32_t>(batch->ancestor_slots.size()) - batch->ancestor_begins.back();
    AppendRow(segment.tree_token_ids[node], chain_len - 1 + depth, segment.tree_slots[node], chain_len, batch);
    batch->ancestor_begins.push_back(static_cast<int32_t>(batch->ancestor_slots.size()));
  }
  EndSegment(segment.block_table, batch);
  return root_row;
}

int32_t AppendGrownSegment(const GrownSegment& segment, ForwardBatch* batch) {
  FT_CHECK(!segment.rows.empty() && segment.chain_len > 0);
  const int32_t first_row = batch->num_rows();
  for (const GrownRow& row : segment.rows) {
    FT_CHECK(!row.ancestor_slots.empty());
    batch->ancestor_slots.insert(batch->ancestor_slots.end(), row.ancestor_slots.begin(), row.ancestor_slots.end());
    batch->ancestor_begins.push_back(static_cast<int32_t>(batch->ancestor_slots.size()));
    const int32_t position = segment.chain_len - 1 + static_cast<int32_t>(row.ancestor_slots.size());
    AppendRow(row.token_id, position, row.ancestor_slots.back(), segment.chain_len, batch);
  }
  EndSegment(segment.block_table, batch);
  return first_row;
}

}  // namespace foretoken::model
