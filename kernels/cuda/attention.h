// SPDX-License-Identifier: Apache-2.0
// Softmax attention over the paged K/V cache, for chains and trees alike: see AttentionArgs.
//
// A row's keys stand at logical positions 0, 1, ...: first through the block table, then its ancestors. They are cut at
// multiples of kAttentionTile into tiles, and tile i belongs to split i % kAttentionSplits. A split visits its tiles in
// order with an online softmax (2205.14135); then the splits are merged in order. Which numbers are added in which
// order is thus a function of logical positions alone (E1): not of where the row's chain ends and its tree begins, of
// its window's other end, or of what stands beside it.
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

inline constexpr int kAttentionTile = 32;
inline constexpr int kAttentionSplits = 8;
inline constexpr int kMaxAttentionHeadDim = 256;

// Heads of at most kMaxAttentionHeadDim dimensions.
void Attention(const AttentionArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
