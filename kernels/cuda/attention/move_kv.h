// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// See MoveKvArgs. Takes device memory for the moved elements while it runs.
void MoveKv(const MoveKvArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
