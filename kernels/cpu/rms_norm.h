// SPDX-License-Identifier: Apache-2.0
// Root mean square normalisation: see RmsNormArgs and MeanSquaresArgs. Parallel over rows.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void RmsNorm(const RmsNormArgs& args, ThreadPool& pool);
void MeanSquares(const MeanSquaresArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
