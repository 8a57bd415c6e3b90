// SPDX-License-Identifier: Apache-2.0
// Finds the best token of each row: the one with the largest logit, or with the largest score
//   logit / temperature + g,
// computed in double from f32 factors. So a score needs no other entry of the row and is compared as it is. Ties go to
// the lowest id. NaN or +inf anywhere in a row is found, and so is a row of only impossible tokens, as on the CPU.
#pragma once

#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

// Scans every wanted row: with the noise if the task has noise and no cut, by plain logits otherwise. Fills scans.
void ScanRows(const RowBatch& batch);

// Scans the rows whose noise had to wait for a cut: by score, among the tokens that the cut keeps. Fills their scans
// anew.
void ScanCutRows(const RowBatch& batch);

// Combines the tiles of the first scan for each row. Fills states, with cuts that keep everything or, for greedy rows,
// the first of the largest logits.
void MergeScans(const RowBatch& batch);

}  // namespace foretoken::kernels::cuda
