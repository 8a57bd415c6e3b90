// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// See CopyRowsArgs.
void CopyRows(const CopyRowsArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
