// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/choose_experts.h"
#include "kernels/tensor_view.h"

namespace foretoken::kernels::cuda {

// out[row] = the sum of the row's choices of weight * outputs[place], in ascending order of the experts.
// outputs: [P, E] f32, out: [T, E] f32.
void AddExperts(const ExpertChoices& choices, const ConstTensorView& outputs, const TensorView& out,
                cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
