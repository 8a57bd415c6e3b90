// SPDX-License-Identifier: Apache-2.0
// What a proposer says of itself and of sessions, checked before it becomes one of our structs.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/rpc/tree_conversion.h"
#include "foretoken/v1/proposal.pb.h"
#include "verifier_service/proposers/session_book.h"

namespace foretoken::verifier {

// FAILED_PRECONDITION where the proposer is of another method or vocabulary, speaks a newer protocol, or needs what
// this verifier does not have. An empty fingerprint, on either side, fits.
absl::Status CheckDescription(const v1::DescribeProposerResponse& description, absl::string_view method,
                              absl::string_view vocabulary_fingerprint);

// Bad trees stand in it as errors.
CheckedAnswer CheckAnswer(const v1::ProposeResponse& response, const rpc::WireTreeLimits& limits);

}  // namespace foretoken::verifier
