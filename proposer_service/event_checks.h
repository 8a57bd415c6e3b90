// SPDX-License-Identifier: Apache-2.0
// The rules for a verifier's events. A proposer checks them before it uses an event. Its sessions share what they
// learn, so a NaN from one session would reach all others and stay.
#pragma once

#include <optional>

#include "foretoken/v1/proposal.pb.h"
#include "proposer_service/proposer/proposer.h"
#include "proposer_service/session_room.h"

namespace foretoken::proposer {

// All of an `open` but its tokens: filters that are numbers in their ranges, a tenant of at most 256 bytes. Any rule,
// seed and sample index is good, and node budgets are cut to the limit. Unset: it keeps to all.
std::optional<Refusal> CheckIntroduction(const v1::OpenSession& open);

// Ids that the proposer knows.
std::optional<Refusal> CheckTokens(const google::protobuf::RepeatedField<uint32_t>& token_ids,
                                   const ProposerDescription& proposer);

// What the proposer is told of a session. The `open` has passed CheckIntroduction.
SessionIntroduction FromProto(const v1::OpenSession& open);

}  // namespace foretoken::proposer
