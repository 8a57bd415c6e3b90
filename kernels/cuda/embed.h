// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// See EmbedArgs. An id outside of the weight stops the device.
void Embed(const EmbedArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
