// SPDX-License-Identifier: Apache-2.0
// Numbers and names of the proposal protocol that both sides use, as proposal.proto states them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "foretoken/v1/proposal.pb.h"

namespace foretoken::rpc {

inline constexpr uint32_t kProposalProtocolVersion = 1;
// Features of DescribeProposerResponse.
inline constexpr absl::string_view kRefusalsFeature = "refusals";
inline constexpr absl::string_view kAllowedTokensFeature = "allowed_tokens";

// The largest messages on the wire.
inline constexpr int32_t kMaxProposeRequestBytes = 4 << 20;
inline constexpr int32_t kMaxProposeResponseBytes = 4 << 20;
// No tree of at most speculation::kMaxTreeNodes nodes and kMaxTreeDraftEntries entries takes more: a node takes at most
// 15 bytes, an entry 9, and a distribution 12 beside its entries.
inline constexpr size_t kMaxTokenTreeBytes = size_t{640} << 10;

inline constexpr size_t kMaxFingerprintBytes = 128;
inline constexpr size_t kMaxTenantBytes = 256;
inline constexpr size_t kMaxRefusalDetailBytes = 256;
inline constexpr uint32_t kMaxTokenIds = 1u << 20;                  // of a vocabulary: an id is below it
inline constexpr size_t kMaxAllowedTokensBytes = size_t{64} << 10;  // of one mask
inline constexpr size_t kMaxFeatureChunkBytes = size_t{64} << 10;   // or one position
inline constexpr uint64_t kMaxFeatureCredit = uint64_t{64} << 20;   // that a verifier counts
inline constexpr size_t kMaxProjectionPieceBytes = size_t{1} << 20;
inline constexpr uint32_t kMaxFeatureWidth = 65'536;  // so a position has at most 128 KiB
inline constexpr absl::string_view kFeatureDtype = "BF16";

// Indexed by v1::RefusalReason; a reason that this build does not know counts as unspecified.
using RefusalCounts = std::array<uint64_t, v1::RefusalReason_ARRAYSIZE>;

// "full", "stream_full" and so on, for metrics; "unspecified" for a reason that this build does not know.
std::string RefusalName(v1::RefusalReason reason);

}  // namespace foretoken::rpc
