// SPDX-License-Identifier: Apache-2.0
// The pass that finds the best token of each row: the largest logit, or the largest score
//   logit / temperature + g,
// computed in double from f32 factors, so that it needs no other entry of the row and is compared as it is. Ties go to
// the lowest id. NaN or +inf anywhere in a row shows, and so does a row where all is impossible, as on the CPU.
#pragma once

#include "kernels/cuda/draw/row_batch.h"

namespace foretoken::kernels::cuda {

// Every wanted row: with the noise where the task has some and no cut, by plain logits otherwise. Fills scans.
void ScanRows(const RowBatch& batch);

// Rows whose noise had to wait for a cut, by score among what their cut keeps. Fills their scans anew.
void ScanCutRows(const RowBatch& batch);

// What the first scan says of each row as a whole. Fills states, with cuts that keep everything, or, of greedy rows,
// the first of the largest logits.
void SettleRows(const RowBatch& batch);

}  // namespace foretoken::kernels::cuda
