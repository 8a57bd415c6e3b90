// SPDX-License-Identifier: Apache-2.0
// Finds the places where top_k, top_p and min_p, in this order, cut scanned rows. kernels/cpu/draw/filter_cut.h says
// which tokens they keep.
//
// Nothing is sorted. A search finds the last token that has less than a target before it. A token's measure is one
// (top_k) or its weight (top_p). The search has a fixed number of passes: the first divides the row's tokens into bins
// by value, and each next pass divides the bin that holds the end again. After the fifth pass that bin holds a single
// value. Measures are integers, so the order in which blocks add does not matter.
#pragma once

#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

// Fills the cuts of the states whose tasks have filters.
void FindCuts(const RowBatch& batch);

}  // namespace foretoken::kernels::cuda
