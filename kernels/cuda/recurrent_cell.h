// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// See RecurrentCellArgs.
void RecurrentCell(const RecurrentCellArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
