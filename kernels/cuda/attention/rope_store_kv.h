// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// See RopeStoreKvArgs. Heads have at most kMaxRopeHeadDim dimensions.
inline constexpr int kMaxRopeHeadDim = 512;
void RopeStoreKv(const RopeStoreKvArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
