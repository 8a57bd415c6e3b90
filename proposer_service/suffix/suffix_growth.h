// SPDX-License-Identifier: Apache-2.0
// Grows a token tree from the match of a sequence's end in two suffix trees: the sequence's own tree and the tree of
// finished outputs.
//
// The tree grows best path chance first. The children of a node are its continuations in either suffix tree. The source
// with the longer match gets its chance first, and the other source gets the rest. In a source, chance(x) = confidence
// * count(node, x) / count(node). The confidence is the learned hit rate of matches of this length and count. The
// length of a node's match is the length of the sequence's match plus the node's depth. A source is followed down to
// depth_per_match times the length of its match of the sequence's end.
//
// A path that reaches the end of the sequence's own text continues at the match of that end, so the tree predicts loops
// beyond the end of the text.
#pragma once

#include <array>

#include "common/speculation/token_tree.h"
#include "proposer_service/suffix/suffix.h"
#include "proposer_service/suffix/suffix_match.h"

namespace foretoken::proposer {

struct SuffixSource {
  const SuffixTree* tree = nullptr;
  SuffixCursor match;  // of the sequence's end; depth 0: there is none
  const SuffixConfidence* confidence = nullptr;
  // The tree holds the sequence's own, growing text. A path that reaches its end continues at the match.
  bool is_own_text = false;
};

inline constexpr int32_t kNumSuffixSources = 2;

struct WantedTree {
  int32_t node_budget = 0;
  const speculation::AllowedTokens& allowed;  // as children of the root
};

// Returns the tree. Its position stays 0; the caller sets it.
speculation::TokenTree GrowSuffixTree(const std::array<SuffixSource, kNumSuffixSources>& sources,
                                      const WantedTree& wanted, const SuffixOptions& options);

}  // namespace foretoken::proposer
