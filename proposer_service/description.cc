// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/description.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/version.h"
#include "common/rpc/proposal_protocol.h"
#include "common/rpc/status.h"
#include "common/tokenizer/vocabulary.h"

namespace foretoken::proposer {

rpc::MessageBounds DescribeRequestBounds() {
  constexpr size_t kMaxDigests = rpc::kMaxProposeRequestBytes / sizeof(uint64_t);  // as many as a message can hold
  return {*v1::DescribeProposerRequest::descriptor(),
          {{.path = "vocabulary_fingerprint", .max_bytes = rpc::kMaxFingerprintBytes},
           {.path = "token_digests", .max_count = kMaxDigests}}};
}

rpc::MessageBounds ProjectionRequestBounds() {
  return {*v1::ReadProjectionRequest::descriptor(), {{.path = "digest", .max_bytes = rpc::kMaxFingerprintBytes}}};
}

v1::DescribeProposerResponse ToProto(const ProposerDescription& description, const SessionLimits& limits) {
  v1::DescribeProposerResponse message;
  message.set_method(description.method);
  message.set_vocabulary_fingerprint(description.vocabulary_fingerprint);
  message.set_max_sessions(static_cast<uint32_t>(limits.max_stream_sessions()));
  message.set_max_context_tokens(static_cast<uint64_t>(limits.max_session_tokens()));
  message.set_max_tree_nodes(static_cast<uint32_t>(limits.max_tree_nodes));
  message.set_version(base::Version());
  message.set_protocol_version(rpc::kProposalProtocolVersion);
  message.add_features(std::string(rpc::kRefusalsFeature));
  message.add_features(std::string(rpc::kAllowedTokensFeature));
  return message;
}

absl::Status CheckVocabulary(const ProposerDescription& description, absl::string_view fingerprint,
                             std::span<const uint64_t> digests) {
  if (fingerprint.size() > rpc::kMaxFingerprintBytes) {
    return rpc::InvalidField("vocabulary_fingerprint", absl::StrCat("expected at most ", rpc::kMaxFingerprintBytes,
                                                                    " bytes, got ", fingerprint.size()));
  }
  const std::string& ours = description.vocabulary_fingerprint;
  if (fingerprint.empty() || ours.empty() || fingerprint == ours) return absl::OkStatus();
  std::string message = absl::StrCat("vocabulary_fingerprint: expected ", ours, ", got ", fingerprint);
  if (!digests.empty() && !description.token_digests.empty()) {
    const std::optional<int32_t> id = tokenizer::FirstDifferingId(description.token_digests, digests);
    if (id.has_value()) absl::StrAppend(&message, "; token id ", *id, " is the first that differs");
  }
  return absl::FailedPreconditionError(message);
}

}  // namespace foretoken::proposer
