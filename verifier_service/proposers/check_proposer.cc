// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/proposers/check_proposer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/rpc/proposal_protocol.h"

namespace foretoken::verifier {

rpc::MessageBounds DescriptionBounds() {
  constexpr size_t kMaxNames = 256, kMaxNameBytes = 1024;
  return {*v1::DescribeProposerResponse::descriptor(),
          {{.path = "method", .max_bytes = kMaxNameBytes},
           {.path = "vocabulary_fingerprint", .max_bytes = kMaxNameBytes},
           {.path = "needed_features", .max_count = kMaxNames, .max_bytes = kMaxNameBytes},
           {.path = "version", .max_bytes = kMaxNameBytes},
           {.path = "features", .max_count = kMaxNames, .max_bytes = kMaxNameBytes},
           {.path = "projection.digest", .max_bytes = kMaxNameBytes}}};
}

absl::Status CheckDescription(const v1::DescribeProposerResponse& description, absl::string_view method,
                              absl::string_view vocabulary_fingerprint, bool gives_features) {
  if (description.protocol_version() > rpc::kProposalProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat("not used: protocol_version expected at most ",
                                                      rpc::kProposalProtocolVersion, ", got ",
                                                      description.protocol_version()));
  }
  if (description.method() != method) {
    return absl::FailedPreconditionError(
        absl::StrCat("not used: method expected \"", method, "\", got ", base::Quoted(description.method())));
  }
  if (!description.vocabulary_fingerprint().empty() && !vocabulary_fingerprint.empty() &&
      description.vocabulary_fingerprint() != vocabulary_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat("not used: vocabulary_fingerprint expected ",
                                                      vocabulary_fingerprint, ", got ",
                                                      base::Quoted(description.vocabulary_fingerprint())));
  }
  if (description.needed_features_size() > 0 && !gives_features) {
    return absl::FailedPreconditionError(
        absl::StrCat("not used: it needs the target's feature ", base::Quoted(description.needed_features(0))));
  }
  return absl::OkStatus();
}

bool ReadsAllowedTokens(const v1::DescribeProposerResponse& description) {
  return std::count(description.features().begin(), description.features().end(), rpc::kAllowedTokensFeature) > 0;
}

rpc::MessageBounds AnswerBounds() {
  constexpr size_t kMaxElements = rpc::MessageBounds::kMaxElements;
  constexpr size_t kMaxNumbers = size_t{4} << 20;  // as many as a message of 4 MiB can hold
  return {*v1::ProposeResponse::descriptor(),
          {{.path = "trees", .max_count = kMaxElements},
           {.path = "trees.token_ids", .max_count = kMaxNumbers},
           {.path = "trees.parents", .max_count = kMaxNumbers},
           {.path = "trees.chances", .max_count = kMaxNumbers},
           {.path = "trees.draft_probs", .max_count = kMaxElements},
           {.path = "trees.draft_probs.token_ids", .max_count = kMaxNumbers},
           {.path = "trees.draft_probs.probabilities", .max_count = kMaxNumbers},
           {.path = "trees.distribution_indices", .max_count = kMaxNumbers},
           {.path = "refused_session_ids", .max_count = kMaxElements},
           {.path = "unknown_session_ids", .max_count = kMaxElements},
           {.path = "refusals", .max_count = kMaxElements},
           {.path = "refusals.detail", .max_bytes = 256}}};
}

CheckedAnswer CheckAnswer(const v1::ProposeResponse& response, const rpc::WireTreeLimits& limits) {
  CheckedAnswer answer;
  answer.trees.reserve(static_cast<size_t>(response.trees_size()));
  for (const v1::TokenTree& tree : response.trees()) {
    answer.trees.push_back({.session_id = tree.session_id(),
                            .tree = rpc::FromProto(tree, limits),
                            .fits_rejection_sampling = rpc::CheckDrawMethod(tree)});
  }
  for (const v1::RefusedSession& refused : response.refusals()) {
    answer.refused.push_back(
        {.session_id = refused.session_id(), .reason = refused.reason(), .detail = refused.detail()});
  }
  // An older proposer fills only this field. SessionBook has already removed the sessions of the list above when it
  // reads these ids, so it ignores duplicates.
  for (const uint64_t session_id : response.refused_session_ids()) answer.refused.push_back({.session_id = session_id});
  answer.feature_credit_bytes = response.feature_credit_bytes();
  answer.unknown_session_ids.assign(response.unknown_session_ids().begin(), response.unknown_session_ids().end());
  return answer;
}

}  // namespace foretoken::verifier
