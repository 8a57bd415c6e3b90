// SPDX-License-Identifier: Apache-2.0
// Softmax attention over the paged K/V cache, for chains and trees alike: see AttentionArgs.
//
// A row's keys stand at logical positions 0, 1, ...: the keys in the block table first, then the ancestors. They are
// cut at multiples of kAttentionTile into tiles. Tile i belongs to split i % kAttentionSplits. A split visits its tiles
// in order with an online softmax (2205.14135). Then the splits are merged in order. So logical positions alone decide
// the numbers that are added and their order (E1). The end of the row's chain, the other end of its window and its
// neighbours in the batch do not matter.
//
// Tensor cores compute the products, bf16 with f32 sums (mma.cuh). q is rounded to bf16, as K was when it was stored. A
// second term for the rest of q would cost half as much again, and K's equal error would remain. The softmax is f32.
// Its weights are rounded to bf16 before they multiply V and before they are summed, so the weights that V sees add up
// to 1.
//
// A query is a row and a head. Queries of one segment and K/V head share a product: 16 queries, each in a row of its
// own. A key that a query does not see has weight 0 there. This changes nothing while the key's V is finite. If some
// queries see only a part of a tile, and the tile's V is not finite, the tile is added query by query.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

inline constexpr int32_t kAttentionTile = 32;
inline constexpr int32_t kAttentionSplits = 16;
inline constexpr int kMaxAttentionHeadDim = 256;

// How many blocks share the splits of some queries: a power of two up to kAttentionSplits. All give the same bits. With
// several, few queries fill a GPU, and a second kernel merges the splits. One block merges them itself, so nothing
// passes through memory. Chooses by counts alone, so that a launch can be recorded before the batch is known.
struct AttentionCounts {
  int64_t num_rows = 0;
  int64_t num_segments = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
};
int32_t ChooseBlocksPerPiece(const AttentionCounts& counts);

// Heads have at most kMaxAttentionHeadDim dimensions.
void Attention(const AttentionArgs& args, cudaStream_t stream);
void Attention(const AttentionArgs& args, int32_t blocks_per_piece, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
