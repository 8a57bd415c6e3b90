// SPDX-License-Identifier: Apache-2.0
// Grows a token tree from where a sequence's end stands in two suffix trees: its own and that of finished outputs.
//
// Best path chance first. A node's children are what follows it in either tree: the longer match speaks first, and what
// chance it leaves goes to the other. In a source, chance(x) = confidence * count(node, x) / count(node), where
// confidence is what matches of this length and count have proved worth, and the match is as long as the source's match
// of the sequence's end and the path together. A source is followed at most depth_per_match times as deep as its match
// of the sequence's end is long.
//
// A path that reaches the end of the sequence's own text goes on where that end was matched: so loops are predicted
// beyond it.
#pragma once

#include <array>

#include "common/speculation/token_tree.h"
#include "proposer_service/suffix/suffix.h"
#include "proposer_service/suffix/suffix_match.h"

namespace foretoken::proposer {

struct SuffixSource {
  const SuffixTree* tree = nullptr;
  SuffixCursor match;  // of depth 0: the source has nothing to say
  const SuffixConfidence* confidence = nullptr;
  // The match is of the tree's own growing text, so a path that reaches its end goes on at the match.
  bool is_own_text = false;
};

inline constexpr int32_t kNumSuffixSources = 2;

// The tree's position stays 0.
speculation::TokenTree GrowSuffixTree(const std::array<SuffixSource, kNumSuffixSources>& sources, int32_t node_budget,
                                      const SuffixOptions& options);

}  // namespace foretoken::proposer
