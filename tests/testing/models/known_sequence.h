// SPDX-License-Identifier: Apache-2.0
// A sequence, a token tree below its last token, and the logits of all of them from plain decoding: one row per pass,
// alone, on a block table that counts up. Row invariance means that every other way to compute these rows gives the
// same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/loaded_model.h"

namespace foretoken::testing {

struct KnownSequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> node_tokens;  // [N] tokens of the tree
  std::vector<int32_t> parents;      // [N] -1: below the last token
  std::vector<Row> rows;             // logits of the tokens
  std::vector<Row> node_rows;        // logits of the nodes

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_nodes() const { return static_cast<int32_t>(parents.size()); }
};

struct SequenceShape {
  std::vector<int32_t> prefix;   // the first tokens
  int32_t num_tokens = 1;        // length, including the prefix
  std::vector<int32_t> parents;  // of the tree; empty: none
  uint32_t seed = 1;             // of the random tokens
};

// Decodes the sequence and its tree plainly, in the first blocks of the cache.
KnownSequence DecodePlainly(LoadedModel& model, const SequenceShape& shape);

// Returns the nodes from the root's child down to `node`.
std::vector<int32_t> PathTo(const std::vector<int32_t>& parents, int32_t node);

// Trees with this number of nodes.
std::vector<int32_t> StarParents(int32_t num_nodes);                        // all nodes below the last token
std::vector<int32_t> ChainParents(int32_t num_nodes);                       // each node below the one before
std::vector<int32_t> BushParents(int32_t num_nodes, int32_t num_children);  // level by level, with num_children each
std::vector<int32_t> CombParents(int32_t num_nodes);                        // a chain with a leaf beside every node
std::vector<int32_t> RandomParents(int32_t num_nodes, uint32_t seed);

}  // namespace foretoken::testing
