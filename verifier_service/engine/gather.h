// SPDX-License-Identifier: Apache-2.0
// Makes one guess of the newest trees of a sequence: late trees are re-rooted onto the tokens that were committed
// meanwhile, the request's own prediction is added, and all of them are merged.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/speculation/token_tree.h"
#include "verifier_service/engine/sequence.h"
#include "verifier_service/engine/step_plan.h"

namespace foretoken::verifier {

// A guess for every sequence that decodes, in the order of `running`.
std::vector<Guess> MergeGuesses(std::span<const std::unique_ptr<Sequence>> running);

// How deep the deepest node stands below the root.
int32_t Depth(const speculation::TokenTree& tree);

// Guesses deeper than this are of no use: the sample's last token is drawn at the node before it.
int32_t MaxGuessDepth(const Sequence& sequence);

}  // namespace foretoken::verifier
