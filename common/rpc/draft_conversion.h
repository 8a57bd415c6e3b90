// SPDX-License-Identifier: Apache-2.0
// What a SAMPLED tree says about its children's draft_prob, between the wire and SampledChildren. Rejection sampling
// divides by these numbers, so nothing of them is believed that can be checked: what is left is a distribution from
// which the children could have been sampled. Whether they were, nobody can check.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/speculation/token_tree.h"
#include "foretoken/v1/token_tree.pb.h"

namespace foretoken::rpc {

// Entries of one distribution, and of all distributions of a tree.
inline constexpr int32_t kMaxDraftEntries = 4096;
inline constexpr int32_t kMaxTreeDraftEntries = 65536;
// What rounding each probability to f32 may add to a sum of 1.
inline constexpr double kMaxDraftSum = 1 + 0x1p-20;

// Fills tree.sampled; the tree has passed Validate, so siblings are distinct and no node has more children than its
// distribution has tokens to sample. Siblings were sampled in the order of their indices. INVALID_ARGUMENT names the
// rule, the node or distribution, expected and got.
absl::Status ReadDraft(const v1::TokenTree& message, int32_t num_tokens, speculation::TokenTree& tree);

// The tree is ours: it has sampled children, every node's are one group, and siblings stand in sampling order.
void WriteDraft(const speculation::TokenTree& tree, v1::TokenTree& message);

}  // namespace foretoken::rpc
