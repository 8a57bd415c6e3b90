// SPDX-License-Identifier: Apache-2.0
// Whether a tree that a verifier waits for is worth another pass of growing before it goes out.
//
// With a tree of value V = 1 + (the path chances of the nodes that go), a verifier emits V tokens a step on average. A
// pass that adds G to it and takes t, where a step takes S, is worth its time while
//
//   (V + G) / (S + t) > V / S,   that is   G / V > t / S
//
// so a verifier of long steps gets a well-grown tree after a little wait, and one of short steps gets what there is. G
// is what the tree itself leads to expect: the pass expands the likeliest leaves, and their children take such parts of
// their chances as children do elsewhere in the tree.
//
// Only for guesses: the time at which sampled children go must not depend on what was sampled.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/speculation/token_tree.h"

namespace foretoken::proposer {

// A pass that may come.
struct ExpectedPass {
  int32_t num_rows = 0;                                // leaves that it expands
  absl::Duration duration = absl::InfiniteDuration();  // not known
};

// What the verifier lets an answer cost.
struct Patience {
  absl::Duration step;  // how long its step takes; zero: not known, and nothing is worth a wait
  absl::Duration left;  // until it starts without the answer
};

// The best `node_budget` nodes of the tree go, now or after the pass.
bool IsWorthAnotherPass(const speculation::TokenTree& tree, int32_t node_budget, const ExpectedPass& pass,
                        const Patience& patience);

// The parts of that decision.
struct ExpectedGrowth {
  double value = 1;  // tokens a step, with the tree as it is
  double gain = 0;   // what the pass adds
};
ExpectedGrowth ExpectGrowth(const speculation::TokenTree& tree, int32_t node_budget, int32_t num_rows);

}  // namespace foretoken::proposer
