// SPDX-License-Identifier: Apache-2.0
// The outcome of each node of a reported tree.
#pragma once

#include <optional>
#include <vector>

#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

enum class NodeOutcome {
  kAccepted,    // had a row, and its token was emitted
  kRejected,    // had a row and an accepted parent, and another token was emitted
  kNotReached,  // had a row below a node that was not accepted
  kMissed,      // carries the emitted token, but had no row
  kNoRow,
};

// [N] The outcome of each node of the step's tree. The step must pass CheckStep.
std::vector<NodeOutcome> NodeOutcomes(const foretoken::v1::StepReport& step);

// [N] The path chance of each node by its proposers' own chances: the product along its path.
std::vector<float> StatedPathChances(const foretoken::v1::StepTree& tree);

// [N] The depth of each node. The root's children have depth 1.
std::vector<int> NodeDepths(const foretoken::v1::StepTree& tree);

// The emitted token after the accepted path. Unset: the sample ended before it.
std::optional<uint32_t> BonusToken(const foretoken::v1::StepReport& step);

}  // namespace foretoken::client
