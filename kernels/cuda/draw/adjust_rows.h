// SPDX-License-Identifier: Apache-2.0
// Bias, penalties and mask for the rows that have any: makes a copy of such a row by the rules of
// kernels/cpu/draw/adjust_row.h, in the same f32 arithmetic and so with the same bits. Rows of a tree differ by the
// path to their node; the path's tokens count as generated.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// One row's adjustment. Ranges are of the arrays in AdjustRowsArgs. Ids outside the vocabulary are left out.
struct RowAdjustment {
  const float* from = nullptr;     // [V]
  float* to = nullptr;             // [V]
  const uint32_t* mask = nullptr;  // as an entry of TreeToAccept::masks
  int32_t bias_begin = 0;
  int32_t bias_end = 0;
  // Tokens that may be penalised. Tokens from path_begin on are not in the context; they are penalised where the row's
  // path has them.
  int32_t counts_begin = 0;
  int32_t path_begin = 0;
  int32_t counts_end = 0;
  int32_t root = 0;  // the tree's first node
  int32_t node = 0;  // the row's node; both index token_ids and parents
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
};

struct AdjustRowsArgs {
  const RowAdjustment* rows = nullptr;
  const LogitBias* bias = nullptr;
  const TokenCount* counts = nullptr;
  const int32_t* token_ids = nullptr;  // of all trees' nodes
  const int32_t* parents = nullptr;    // within the tree
  int32_t num_rows = 0;
  int32_t num_tokens = 0;  // V
};

void AdjustRows(const AdjustRowsArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
