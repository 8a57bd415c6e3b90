// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// See GluArgs.
void Glu(const GluArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
