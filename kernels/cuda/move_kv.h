// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// See MoveKvArgs. The moves are copied before this returns; device memory for what they move is taken for the time
// between.
void MoveKv(const MoveKvArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
