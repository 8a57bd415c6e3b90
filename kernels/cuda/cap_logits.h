// SPDX-License-Identifier: Apache-2.0
// See CapLogitsArgs.
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

void CapLogits(const CapLogitsArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
