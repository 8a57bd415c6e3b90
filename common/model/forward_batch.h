// SPDX-License-Identifier: Apache-2.0
// The work of one forward pass: a list of segments, each the new tokens of one sequence. It has flat arrays of integers
// and no pointers, so it can be a message to another rank. kernels/ops.h describes every array (BatchView is the same
// on a device).
//
//   ForwardBatch batch;
//   AppendSegment({.block_table = blocks, .first_position = 32, .chain = {7, 8}, .tree_token_ids = ..., }, &batch);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace foretoken::model {

struct ForwardBatch {
  std::vector<int32_t> token_ids;           // [T]
  std::vector<int32_t> positions;           // [T]
  std::vector<int32_t> slots;               // [T]
  std::vector<int32_t> chain_lens;          // [T]
  std::vector<int32_t> ancestor_begins{0};  // [T + 1]
  std::vector<int32_t> ancestor_slots;
  std::vector<int32_t> segment_begins{0};      // [S + 1]
  std::vector<int32_t> block_table_begins{0};  // [S + 1]
  std::vector<int32_t> block_tables;
  std::vector<int32_t> logit_rows;  // rows that need logits, in this order

  int32_t num_rows() const { return static_cast<int32_t>(token_ids.size()); }
  int32_t num_segments() const { return static_cast<int32_t>(segment_begins.size()) - 1; }
};

// The rows of one sequence: a chain at consecutive positions, and a tree below its last token.
struct Segment {
  std::span<const int32_t> block_table;  // covers every chain position
  int32_t first_position = 0;            // of the chain
  std::span<const int32_t> chain;        // at least one token
  std::span<const int32_t> tree_token_ids;
  std::span<const int32_t> tree_parents;  // node index, or -1 below the chain's last token; a parent comes before its
                                          // children
  std::span<const int32_t> tree_slots;    // the slots for the nodes' K/V
};

// Returns the row of the chain's last token; the tree's rows follow it.
int32_t AppendSegment(const Segment& segment, ForwardBatch* batch);

// A node of a tree whose ancestors were computed in earlier passes.
struct GrownRow {
  int32_t token_id = 0;
  std::span<const int32_t> ancestor_slots;  // nearest the root first, its own last
};

// Rows of one sequence's tree, without its chain. The cache already holds positions [0, chain_len) and all of a row's
// ancestors except the row itself. AppendGrownSegment returns the first row.
struct GrownSegment {
  std::span<const int32_t> block_table;  // covers [0, chain_len)
  int32_t chain_len = 0;
  std::span<const GrownRow> rows;
};
int32_t AppendGrownSegment(const GrownSegment& segment, ForwardBatch* batch);

// The slot of a position.
int32_t SlotOf(std::span<const int32_t> block_table, int32_t position);

}  // namespace foretoken::model
