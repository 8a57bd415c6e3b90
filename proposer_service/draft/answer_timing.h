// SPDX-License-Identifier: Apache-2.0
// Decides whether a tree that a verifier waits for goes out now or after one more pass of growing.
//
// The nodes that go out have a sum of path chances, and V = 1 + this sum is the mean number of tokens that the verifier
// emits in a step. The next pass adds G to V and takes the time t. A step takes the time S. The pass is worth its time
// while
//
//   (V + G) / (S + t) > V / S,   that is   G / V > t / S
//
// So a verifier with long steps waits a little and gets a larger tree. A verifier with short steps gets the tree as it
// is. G is an estimate from the tree itself: the pass expands the likeliest leaves, and their children take the same
// shares of their parents' chances as the other children of the tree.
//
// The decision is for guesses only. The time at which sampled children go out must not depend on the sample.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/speculation/token_tree.h"

namespace foretoken::proposer {

// The pass that would come next.
struct ExpectedPass {
  int32_t num_rows = 0;                                // leaves that it expands
  absl::Duration duration = absl::InfiniteDuration();  // not known
};

// The time that an answer may take.
struct Patience {
  absl::Duration step;  // the time of a verifier's step; zero: not known, and no pass is worth a wait
  absl::Duration left;  // until the verifier starts its step without the answer
};

// Whether the best `node_budget` nodes of the tree go out after the pass. False: they go out now.
bool IsWorthAnotherPass(const speculation::TokenTree& tree, int32_t node_budget, const ExpectedPass& pass,
                        const Patience& patience);

// The two sides of the decision.
struct ExpectedGrowth {
  double value = 1;  // tokens per step, with the tree as it is
  double gain = 0;   // tokens per step that the pass adds
};
ExpectedGrowth ExpectGrowth(const speculation::TokenTree& tree, int32_t node_budget, int32_t num_rows);

}  // namespace foretoken::proposer
