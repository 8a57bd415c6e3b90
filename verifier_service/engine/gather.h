// SPDX-License-Identifier: Apache-2.0
// Merges the newest trees of a sequence into one guess. Late trees are re-rooted first. The trees of
// the request's prediction and of its grammar are among them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/speculation/token_tree.h"
#include "verifier_service/engine/sequence.h"
#include "verifier_service/engine/step_plan.h"

namespace foretoken::verifier {

// Returns a guess for every sequence that decodes in this step, in the order of `running`.
std::vector<Guess> MergeGuesses(std::span<const std::unique_ptr<Sequence>> running);

// Returns the depth of the deepest node. Children of the root have depth 1. An empty tree has depth 0.
int32_t Depth(const speculation::TokenTree& tree);

// Returns the largest useful depth of a guess. The row of a node at this depth draws the last token that max_tokens
// allows.
int32_t MaxGuessDepth(const Sequence& sequence);

}  // namespace foretoken::verifier
