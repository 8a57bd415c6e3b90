// SPDX-License-Identifier: Apache-2.0
// The walks of AcceptTreesArgs over rows that are drawn or weighed already.
#pragma once

#include <cstdint>

#include "kernels/cuda/draw/flat_trees.h"
#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

// The result of a row.
struct RowOutcome {
  int32_t is_visited = 0;  // 1: the row emitted the token
  int32_t token_id = 0;
};

struct WalkTreesArgs {
  RowWork rows;  // of all trees, in their order
  TreeArrays trees;
  RowOutcome* outcomes = nullptr;      // [rows] zeros before the walk
  DrawStatus* statuses = nullptr;      // [trees]
  double* draft_left = nullptr;        // one per entry of draft_ids: memory of the tests
  FixedWeight* target_left = nullptr;  // one per entry of test_ids: the same
};

// For trees of the keyed draw: rows have been scanned.
void WalkByKeyedDraw(const WalkTreesArgs& args, cudaStream_t stream);

// For trees of rejection sampling: rows have been scanned, cut and weighed. It changes the weights of visited rows.
void WalkByRejection(const WalkTreesArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
