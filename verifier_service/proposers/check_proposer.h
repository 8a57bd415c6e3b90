// SPDX-License-Identifier: Apache-2.0
// Checks a proposer's description and answers before they become structs of the verifier.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/rpc/message_bounds.h"
#include "common/rpc/tree_conversion.h"
#include "foretoken/v1/proposal.pb.h"
#include "verifier_service/proposers/session_book.h"

namespace foretoken::verifier {

// The bounds of a DescribeProposerResponse.
rpc::MessageBounds DescriptionBounds();

// Returns FAILED_PRECONDITION if the proposer has another method or vocabulary, speaks a newer protocol, or needs
// features of the target and this verifier gives none. An empty fingerprint on either side matches.
absl::Status CheckDescription(const v1::DescribeProposerResponse& description, absl::string_view method,
                              absl::string_view vocabulary_fingerprint, bool gives_features);

// Whether masks help the proposer. An older proposer takes masks for large unknown fields and ends the stream.
bool ReadsAllowedTokens(const v1::DescribeProposerResponse& description);

// The bounds of a ProposeResponse. They keep an answer of a few MiB from growing a hundredfold when it is parsed. The
// rules of a tree are checked later, per sequence.
rpc::MessageBounds AnswerBounds();

// Converts an answer. A bad tree becomes an error in its place.
CheckedAnswer CheckAnswer(const v1::ProposeResponse& response, const rpc::WireTreeLimits& limits);

}  // namespace foretoken::verifier
