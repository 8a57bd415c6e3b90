// SPDX-License-Identifier: Apache-2.0
// Token trees between the wire and our own struct. Nothing of a peer's tree is believed: it is checked before it
// becomes a speculation::TokenTree, and the checks cost no more than reading it.
//
//   const WireTreeLimits limits = {.num_tokens = vocabulary_size, .max_nodes = 64, .proposers = 1};
//   FT_ASSIGN_OR_RETURN(const TokenTree tree, FromProto(message, limits));
//
// The distributions of a SAMPLED tree (draft_conversion.h) are checked whatever the sequence's rule is. They mean
// something to rejection sampling only; under the keyed draw any tree is lossless, and a lie is still a lie. So the
// nodes of a draw method that this build does not know are guesses like any other, and what stands beside them is not
// read.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/speculation/token_tree.h"
#include "foretoken/v1/token_tree.pb.h"

namespace foretoken::rpc {

struct WireTreeLimits {
  int32_t num_tokens = 0;                          // token ids lie in [0, num_tokens)
  int32_t max_nodes = speculation::kMaxTreeNodes;  // refused above
  uint32_t proposers = 0;                          // the bits that every node of the tree gets
};

// INVALID_ARGUMENT: the draw method is not known, so that the tree says nothing that rejection sampling could test.
absl::Status CheckDrawMethod(const v1::TokenTree& message);

// INVALID_ARGUMENT names the rule that the message breaks, the node, expected and got.
absl::StatusOr<speculation::TokenTree> FromProto(const v1::TokenTree& message, const WireTreeLimits& limits);

// The tree as a message of `session_id`. The tree is ours: valid, and all of its children are sampled, siblings in the
// order of sampling, or all are guesses (DRAW_METHOD_POINT).
v1::TokenTree ToProto(const speculation::TokenTree& tree, uint64_t session_id);

}  // namespace foretoken::rpc
