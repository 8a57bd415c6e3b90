// SPDX-License-Identifier: Apache-2.0
// Softmax attention over the paged K/V cache, for chains and trees alike: see AttentionArgs.
//
// A row's keys stand at logical positions 0, 1, ...: the keys in the block table first, then the ancestors. The rows
// visit them in that order, in tiles of kAttentionTile positions, cut at multiples of it, with an online softmax
// (2205.14135) across tiles. A row's result depends on the positions and values of its keys alone. Rows and heads that
// read the same tile share the loaded tile, never arithmetic (E1).
//
// Threads: parallel over (row tile of a segment, kv head).
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

inline constexpr int kAttentionTile = 64;

void Attention(const AttentionArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
