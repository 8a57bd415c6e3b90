// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// See SumRanksArgs.
void SumRanks(const SumRanksArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
