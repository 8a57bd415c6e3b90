// SPDX-License-Identifier: Apache-2.0
// The Communicator of ranks with a GPU each. NCCL moves bytes, in the order of each rank's stream, and nobody on the
// host waits; it never adds.
//
// Errors: those of NCCL when the group is made come back as one line; a later one ends the process with the call, the
// rank and the place, and so does a call whose peers fail it while it runs, which the next call finds.
#pragma once

#include <span>

#include "kernels/backend_options.h"
#include "kernels/cuda/nccl_library.h"

namespace foretoken::kernels::cuda {

// Where a rank computes.
struct NcclPlace {
  int device = 0;  // CUDA's number; no two ranks have the same
  cudaStream_t stream = nullptr;
};

MadeCommunicators MakeNcclCommunicators(std::span<const NcclPlace> places, const NcclLibrary& nccl);

}  // namespace foretoken::kernels::cuda
