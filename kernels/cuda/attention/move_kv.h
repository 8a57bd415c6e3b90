// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// See MoveKvArgs. Device memory for what is moved is taken for the time that it takes.
void MoveKv(const MoveKvArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
