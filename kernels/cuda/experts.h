// SPDX-License-Identifier: Apache-2.0
// The experts of a layer: see ExpertsArgs. Kernels choose the experts, sort the choices by expert, and multiply the
// rows of all experts together, once by gate and up and once by down (matmul_grouped.h). The host never learns what a
// row chose, so a pass with experts can be recorded.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/cuda/base/device.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Asks for all experts now; they must live as long as the set.
std::unique_ptr<ExpertSet> PrepareExperts(int32_t num_experts, const std::function<Expert(int32_t expert)>& expert,
                                          Device& device);

// The set is one that PrepareExperts made.
void Experts(const ExpertsArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
