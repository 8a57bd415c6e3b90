// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/tree_conversion.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/draft_conversion.h"

namespace foretoken::rpc {
namespace {

// Ranges that would not survive the way into the struct's narrower types; Validate sees all the rest.
absl::Status CheckRepresentable(const v1::TokenTree& message, const WireTreeLimits& limits) {
  if (message.token_ids_size() > limits.max_nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("token tree size: expected at most ", limits.max_nodes, " nodes, got ", message.token_ids_size()));
  }
  for (int node_idx = 0; node_idx < message.token_ids_size(); ++node_idx) {
    if (message.token_ids(node_idx) > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) {
      return absl::InvalidArgumentError(absl::StrCat("token tree node ", node_idx, ": token id expected in [0, ",
                                                     limits.num_tokens, "), got ", message.token_ids(node_idx)));
    }
  }
  if (!v1::DrawMethod_IsValid(message.draw_method())) {
    return absl::InvalidArgumentError(
        absl::StrCat("token tree draw_method: expected a known one, got ", static_cast<int>(message.draw_method())));
  }
  if (message.draw_method() != v1::DRAW_METHOD_SAMPLED &&
      (message.draft_probs_size() > 0 || message.distribution_indices_size() > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token tree draft_probs: expected none where children are not DRAW_METHOD_SAMPLED, got ",
        message.draft_probs_size(), " and ", message.distribution_indices_size(), " distribution_indices"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<speculation::TokenTree> FromProto(const v1::TokenTree& message, const WireTreeLimits& limits) {
  FT_RETURN_IF_ERROR(CheckRepresentable(message, limits));
  speculation::TokenTree tree{.position = message.position()};
  tree.token_ids.assign(message.token_ids().begin(), message.token_ids().end());
  tree.parents.assign(message.parents().begin(), message.parents().end());
  tree.chances.assign(message.chances().begin(), message.chances().end());
  tree.proposers.assign(tree.token_ids.size(), limits.proposers);
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
  message.mutable_token_ids()->Add(tree.token_ids.begin(), tree.token_ids.end());
  message.mutable_parents()->Add(tree.parents.begin(), tree.parents.end());
  message.mutable_chances()->Add(tree.chances.begin(), tree.chances.end());
  message.set_draw_method(tree.sampled.empty() ? v1::DRAW_METHOD_POINT : v1::DRAW_METHOD_SAMPLED);
  if (!tree.sampled.empty()) WriteDraft(tree, message);
  return message;
}

}  // namespace foretoken::rpc
