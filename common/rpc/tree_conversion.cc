// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/tree_conversion.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/draft_conversion.h"

namespace foretoken::rpc {
namespace {

// Checks the two rules that the struct cannot break: arrays of one length, and ids of at most 31 bits. Validate checks
// all other rules.
absl::Status CheckRepresentable(const v1::TokenTree& message, const WireTreeLimits& limits) {
  if (message.token_ids_size() > limits.max_nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("token tree size: expected at most ", limits.max_nodes, " nodes, got ", message.token_ids_size()));
  }
  if (message.parents_size() != message.token_ids_size() || message.chances_size() != message.token_ids_size()) {
    return absl::InvalidArgumentError(absl::StrCat("token tree arrays: expected one length, got ",
                                                   message.token_ids_size(), " token_ids, ", message.parents_size(),
                                                   " parents, ", message.chances_size(), " chances"));
  }
  for (int node_idx = 0; node_idx < message.token_ids_size(); ++node_idx) {
    if (message.token_ids(node_idx) > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) {
      return absl::InvalidArgumentError(absl::StrCat("token tree node ", node_idx, ": token id expected in [0, ",
                                                     limits.num_tokens, "), got ", message.token_ids(node_idx)));
    }
  }
  if (v1::DrawMethod_IsValid(message.draw_method()) && message.draw_method() != v1::DRAW_METHOD_SAMPLED &&
      (message.draft_probs_size() > 0 || message.distribution_indices_size() > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token tree draft_probs: expected none where children are not DRAW_METHOD_SAMPLED, got ",
        message.draft_probs_size(), " and ", message.distribution_indices_size(), " distribution_indices"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDrawMethod(const v1::TokenTree& message) {
  if (v1::DrawMethod_IsValid(message.draw_method())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("token tree draw_method: expected a known one for rejection sampling, got ",
                   static_cast<int>(message.draw_method())));
}

absl::StatusOr<speculation::TokenTree> FromProto(const v1::TokenTree& message, const WireTreeLimits& limits) {
  FT_RETURN_IF_ERROR(CheckRepresentable(message, limits));
  speculation::TokenTree tree{.position = message.position(),
                              .num_predicted_features = message.num_predicted_features()};
  tree.nodes.reserve(message.token_ids_size());
  for (int i = 0; i < message.token_ids_size(); ++i) {
    tree.Append({.token_id = static_cast<int32_t>(message.token_ids(i)),
                 .parent = message.parents(i),
                 .chance = message.chances(i),
                 .proposers = limits.proposers});
  }
  FT_RETURN_IF_ERROR(speculation::Validate(tree, limits.num_tokens, limits.max_nodes));
  if (message.draw_method() == v1::DRAW_METHOD_SAMPLED) {
    FT_RETURN_IF_ERROR(ReadDraft(message, limits.num_tokens, tree));
  }
  return tree;
}

v1::TokenTree ToProto(const speculation::TokenTree& tree, uint64_t session_id) {
  v1::TokenTree message;
  message.set_session_id(session_id);
  message.set_position(tree.position);
  message.set_num_predicted_features(tree.num_predicted_features);
  message.mutable_token_ids()->Reserve(tree.num_nodes());
  message.mutable_parents()->Reserve(tree.num_nodes());
  message.mutable_chances()->Reserve(tree.num_nodes());
  for (const speculation::TreeNode& node : tree.nodes) {
    message.add_token_ids(static_cast<uint32_t>(node.token_id));
    message.add_parents(node.parent);
    message.add_chances(node.chance);
  }
  message.set_draw_method(tree.sampled.empty() ? v1::DRAW_METHOD_POINT : v1::DRAW_METHOD_SAMPLED);
  if (!tree.sampled.empty()) WriteDraft(tree, message);
  return message;
}

}  // namespace foretoken::rpc
