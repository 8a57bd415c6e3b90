// SPDX-License-Identifier: Apache-2.0
// The rules for a verifier's events. A proposer checks an event before it uses it. Sessions share what they learn, so
// a NaN from one session would reach all others and stay.
#pragma once

#include <optional>

#include "common/rpc/message_bounds.h"
#include "foretoken/v1/proposal.pb.h"
#include "proposer_service/proposer/proposer.h"
#include "proposer_service/session_room.h"

namespace foretoken::proposer {

// The bounds of a ProposeRequest. They keep a message of 4 MiB from becoming a hundred times as large in parsing. The
// session table refuses a context that is too long for its session.
rpc::MessageBounds RequestBounds();

// Checks all of an `open` but its tokens: the filters must be numbers in their ranges, and a tenant has at most 256
// bytes. Every rule, seed and sample index is allowed. A node budget may be any number; the service cuts it to the
// limit. Unset: the `open` keeps all rules.
std::optional<Refusal> CheckIntroduction(const v1::OpenSession& open);

// Checks that the proposer knows all ids.
std::optional<Refusal> CheckTokens(const google::protobuf::RepeatedField<uint32_t>& token_ids,
                                   const ProposerDescription& proposer);

// Checks a chunk for a session that has `position` tokens. Its values may be any bits.
std::optional<Refusal> CheckFeatures(const v1::FeatureChunk& chunk, const speculation::TargetFeatures& features,
                                     uint64_t position);

// Makes the introduction of a session from an `open` that has passed CheckIntroduction.
SessionIntroduction FromProto(const v1::OpenSession& open);

}  // namespace foretoken::proposer
