// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// See JoinColumnsArgs.
void JoinColumns(const JoinColumnsArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
