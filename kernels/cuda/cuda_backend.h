// SPDX-License-Identifier: Apache-2.0
// The Backend of an NVIDIA GPU: ops are enqueued on one stream, and whoever calls is not kept waiting. A rank computes
// on the GPU of its number, counted round: several ranks share one where there are fewer GPUs.
//
// Passes of up to 64 rows are recorded as CUDA graphs; the ops of a pass take all else but counts from device memory.
// Products of many rows are cuBLASLt's where that was found to move no bit (library_serving.h), which Describe does
// not tell therefore. Ranks that share a GPU leave that out: they would all try it at once, and disturb each other.
// Errors: what the machine lacks comes back as one line; what fails later ends the process (kernels/device_failure.h).
// Threads: one caller at a time, on any thread. No header of CUDA's is needed to include this.
#pragma once

#include <span>

#include "kernels/backend_options.h"

namespace foretoken::kernels::cuda {

struct LibraryOptions;  // library_serving.h

MadeBackend MakeBackend(const BackendOptions& options);
// With another cuBLASLt than the machine's, or asked for other row counts: more than a pass has that is recorded.
MadeBackend MakeBackendWithLibrary(const BackendOptions& options, const LibraryOptions& library);

// Of backends that MakeBackend made, by rank: whether no two compute on one GPU.
bool HaveOwnDevices(std::span<Backend* const> backends);
// Then: over the machine's NCCL.
MadeCommunicators MakeCommunicators(std::span<Backend* const> backends);

}  // namespace foretoken::kernels::cuda
