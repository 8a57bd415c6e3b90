// SPDX-License-Identifier: Apache-2.0
// The walks of AcceptTreesArgs over rows whose draws or weights are there already.
#pragma once

#include <cstdint>

#include "kernels/cuda/draw/row_batch.h"
#include "kernels/cuda/draw/tree_batch.h"

namespace foretoken::kernels::cuda {

// What became of a row.
struct RowOutcome {
  int32_t is_visited = 0;  // 1: it emitted the token
  int32_t token_id = 0;
};

struct WalkTreesArgs {
  RowWork rows;  // of all trees, in their order
  TreeArrays trees;
  RowOutcome* outcomes = nullptr;      // [rows] zeros at first
  DrawStatus* statuses = nullptr;      // [trees]
  double* draft_left = nullptr;        // as draft_ids: memory of the tests
  FixedWeight* target_left = nullptr;  // as test_ids: the same
};

// Trees of the keyed draw: rows have been scanned.
void WalkByKeyedDraw(const WalkTreesArgs& args, cudaStream_t stream);

// Trees of rejection sampling: rows have been settled, cut and weighed. Weights of visited rows are changed.
void WalkByRejection(const WalkTreesArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
