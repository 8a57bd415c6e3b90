// SPDX-License-Identifier: Apache-2.0
// Softmax attention over the paged K/V cache, for chains and trees alike: see AttentionArgs.
//
// A row's keys stand at logical positions 0, 1, ...: first through the block table, then its ancestors. They are cut at
// multiples of kAttentionTile into tiles, and tile i belongs to split i % kAttentionSplits. A split visits its tiles in
// order with an online softmax (2205.14135); then the splits are merged in order. Which numbers are added in which
// order is thus a function of logical positions alone (E1): not of where the row's chain ends and its tree begins, of
// its window's other end, or of what stands beside it.
//
// Products are tensor cores', bf16 with f32 sums (mma.cuh). q is rounded to bf16, as K was when it was stored: a second
// term for the rest of q would leave K's equal error and cost half as much again. The softmax is f32; its weights are
// rounded to bf16 before they meet V and before they are summed, so they add up to 1 as V sees them.
//
// A query is a row and a head. Queries of one segment and K/V head share products: 16 stand in one, each in a row of
// its own. A key that a query does not see has weight 0 there, which changes nothing as long as the key's V is finite;
// a tile of which some see a part, and whose V is not, is added query by query.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

inline constexpr int32_t kAttentionTile = 32;
inline constexpr int32_t kAttentionSplits = 16;
inline constexpr int kMaxAttentionHeadDim = 256;

// Who computes the splits of some queries. The bits are the same.
enum class SplitWork {
  kBlockPerSplit,  // a block each, so that few queries with long contexts fill a GPU; a second kernel merges
  kOneBlock,       // one after another, merged at once: nothing passes through memory
};
// From counts alone, so that a launch can be recorded before the batch is known.
SplitWork ChooseSplitWork(int64_t num_rows, int64_t num_heads);

// Heads of at most kMaxAttentionHeadDim dimensions.
void Attention(const AttentionArgs& args, cudaStream_t stream);
void Attention(const AttentionArgs& args, SplitWork work, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
