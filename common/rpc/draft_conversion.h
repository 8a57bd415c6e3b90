// SPDX-License-Identifier: Apache-2.0
// Converts the draft distributions of a SAMPLED tree between the wire and SampledChildren. Rejection sampling divides
// by these numbers, so everything that can be checked is checked: the children could have been sampled from the
// distribution. No check can show that they really were.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/speculation/token_tree.h"
#include "foretoken/v1/token_tree.pb.h"

namespace foretoken::rpc {

// The most entries of one distribution, and of all distributions of a tree.
inline constexpr int32_t kMaxDraftEntries = 4096;
inline constexpr int32_t kMaxTreeDraftEntries = 65536;
// Rounding each probability to f32 may raise a sum of 1 to this.
inline constexpr double kMaxDraftSum = 1 + 0x1p-20;

// Fills tree.sampled. The tree has passed Validate, so siblings are distinct. ReadDraft refuses a node with more
// children than its distribution has tokens to sample. Siblings were sampled in the order of their indices.
// INVALID_ARGUMENT names the rule, the node or distribution, the expected and the given value.
absl::Status ReadDraft(const v1::TokenTree& message, int32_t num_tokens, speculation::TokenTree& tree);

// The tree is our own: it has sampled children, the children of every node are one group, and siblings stand in
// sampling order.
void WriteDraft(const speculation::TokenTree& tree, v1::TokenTree& message);

}  // namespace foretoken::rpc
