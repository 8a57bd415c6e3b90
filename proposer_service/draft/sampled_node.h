// SPDX-License-Identifier: Apache-2.0
// A node's children for rejection sampling. They are drawn without replacement from the truncated distribution of the
// draft's row, rounded to f32 as on the wire. This file meets all rules of DRAW_METHOD_SAMPLED that concern one node.
//
// The number of children depends on the distribution only. The noise is Philox with purpose kDraftDraw. Its key is the
// seed, a hash of the node's whole context and the proposer's salt. So no two nodes share noise, no two proposers share
// noise, even with the same model, and a node that is grown again gets the same children.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/speculation/token_tree.h"
#include "kernels/ops.h"

namespace foretoken::proposer {

struct SampledNode {
  std::shared_ptr<const speculation::DraftDistribution> draft;  // shared by the snapshots of a tree
  std::vector<kernels::ScoredToken> children;                   // in the order of sampling; log draft_prob
};

struct SampleArgs {
  std::span<const kernels::ScoredToken> distribution;  // distinct tokens, log draft_prob
  int32_t num_children = 0;
  uint64_t seed = 0;
  uint32_t sample_index = 0;
  uint64_t context_hash = 0;
  uint64_t salt = 0;  // the proposer's own
};

SampledNode SampleChildren(const SampleArgs& args);

// The hash of a context after one more token. The hash of the empty context is 0.
uint64_t ExtendContextHash(uint64_t hash, int32_t token_id);

}  // namespace foretoken::proposer
