// SPDX-License-Identifier: Apache-2.0
// What a proposer tells of itself, and whether a verifier's vocabulary is its own. Both follow from the description
// alone: to ask changes nothing.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "foretoken/v1/proposal.pb.h"
#include "proposer_service/config.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

v1::DescribeProposerResponse ToProto(const ProposerDescription& description, const SessionLimits& limits);

// FAILED_PRECONDITION: the proposer is bound to another vocabulary than the one with this fingerprint; empty: not told,
// which fits. Where the verifier's digests are there, too, the first id that differs is named. INVALID_ARGUMENT: it is
// no fingerprint.
absl::Status CheckVocabulary(const ProposerDescription& description, absl::string_view fingerprint,
                             std::span<const uint64_t> digests = {});

}  // namespace foretoken::proposer
