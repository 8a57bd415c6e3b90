// SPDX-License-Identifier: Apache-2.0
// The Communicator of ranks that have a GPU each. NCCL moves bytes in the order of each rank's stream, and no host
// thread waits. It never adds.
//
// Errors: an error of NCCL while the group is made gives one line. A later error ends the process with the call, the
// rank and the place. If peers fail a running call, the next call finds the error.
#pragma once

#include <span>

#include "kernels/backend_options.h"
#include "kernels/cuda/nccl_library.h"

namespace foretoken::kernels::cuda {

// The place where a rank computes.
struct NcclPlace {
  int device = 0;  // CUDA's number; no two ranks have the same
  cudaStream_t stream = nullptr;
};

MadeCommunicators MakeNcclCommunicators(std::span<const NcclPlace> places, const NcclLibrary& nccl);

}  // namespace foretoken::kernels::cuda
