// SPDX-License-Identifier: Apache-2.0
// Converts token trees between the wire and our own struct. A peer's tree is checked completely before it becomes a
// speculation::TokenTree, and the checks cost no more than reading it.
//
//   const WireTreeLimits limits = {.num_tokens = vocabulary_size, .max_nodes = 64, .proposers = 1};
//   FT_ASSIGN_OR_RETURN(const TokenTree tree, FromProto(message, limits));
//
// The distributions of a SAMPLED tree (draft_conversion.h) are checked under either rule of the sequence. Only
// rejection sampling uses them; the keyed draw is lossless for any tree. But a wrong distribution is an error in any
// case. The nodes of a draw method that this build does not know are guesses like any other, and the fields beside them
// are not read.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/speculation/token_tree.h"
#include "foretoken/v1/token_tree.pb.h"

namespace foretoken::rpc {

struct WireTreeLimits {
  int32_t num_tokens = 0;                          // token ids lie in [0, num_tokens)
  int32_t max_nodes = speculation::kMaxTreeNodes;  // larger trees are refused
  uint32_t proposers = 0;                          // the proposer bits that every node of the tree gets
};

// INVALID_ARGUMENT: the draw method is not known, so the tree has nothing that rejection sampling could test.
absl::Status CheckDrawMethod(const v1::TokenTree& message);

// INVALID_ARGUMENT names the broken rule, the node, the expected and the given value.
absl::StatusOr<speculation::TokenTree> FromProto(const v1::TokenTree& message, const WireTreeLimits& limits);

// Makes the tree a message of `session_id`. The tree is our own and valid. Either all of its children are sampled, with
// siblings in the order of sampling, or all are guesses (DRAW_METHOD_POINT).
v1::TokenTree ToProto(const speculation::TokenTree& tree, uint64_t session_id);

}  // namespace foretoken::rpc
