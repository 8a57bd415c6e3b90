// SPDX-License-Identifier: Apache-2.0
// A proposer's description of itself for a verifier, and the comparison of two vocabularies. Neither changes any state.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/rpc/message_bounds.h"
#include "foretoken/v1/proposal.pb.h"
#include "proposer_service/config.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

// The bounds of the requests that ask for a description and for a part of the projection.
rpc::MessageBounds DescribeRequestBounds();
rpc::MessageBounds ProjectionRequestBounds();

v1::DescribeProposerResponse ToProto(const ProposerDescription& description, const SessionLimits& limits);

// Compares the verifier's vocabulary fingerprint with the proposer's. An empty fingerprint means "not told" and fits
// any proposer. FAILED_PRECONDITION: the proposer has another vocabulary; where the verifier sent digests, the error
// names the first id that differs. INVALID_ARGUMENT: the text is no fingerprint.
absl::Status CheckVocabulary(const ProposerDescription& description, absl::string_view fingerprint,
                             std::span<const uint64_t> digests = {});

}  // namespace foretoken::proposer
