// SPDX-License-Identifier: Apache-2.0
// What came of each node of a reported tree.
#pragma once

#include <optional>
#include <vector>

#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

enum class NodeOutcome {
  kAccepted,    // had a row, and was said
  kRejected,    // had a row; the walk came by and went elsewhere
  kNotReached,  // had a row below a node that was not accepted
  kMissed,      // would have been right, but had no row
  kNoRow,
};

// [N] Of each node of the step's tree, which is well-formed as CheckStep has it.
std::vector<NodeOutcome> NodeOutcomes(const foretoken::v1::StepReport& step);

// How likely each node is emitted if its proposers' chances are taken at their word: the product along its path. [N]
std::vector<float> StatedPathChances(const foretoken::v1::StepTree& tree);

// [N] How deep each node stands; the root's children at depth 1.
std::vector<int> NodeDepths(const foretoken::v1::StepTree& tree);

// The emitted token that no node carries, where the sample did not end before it.
std::optional<uint32_t> BonusToken(const foretoken::v1::StepReport& step);

}  // namespace foretoken::client
