// SPDX-License-Identifier: Apache-2.0
// Where top_k, top_p and min_p cut settled rows, in this order; see kernels/cpu/draw/filter_cut.h for what they keep.
//
// Nothing is put in order. A search finds the last token that has less than a target before it, where tokens measure
// one each (top_k) or their weight (top_p), in a fixed number of passes: the row's tokens are dealt into bins by value,
// the bin that holds the end is dealt again, and after the fifth pass it holds a single value. Measures are integers,
// so no sum depends on the order in which blocks add.
#pragma once

#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

// Fills the cuts of those states whose tasks have any.
void FindCuts(const RowBatch& batch);

}  // namespace foretoken::kernels::cuda
