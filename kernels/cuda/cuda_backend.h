// SPDX-License-Identifier: Apache-2.0
// The Backend of an NVIDIA GPU. Ops are enqueued on one stream, and the caller does not wait. Rank r computes on GPU r
// modulo the number of GPUs, so several ranks share one where there are fewer GPUs.
//
// Passes of up to 64 rows are recorded as CUDA graphs. The ops of a pass read everything but counts from device memory.
// Products of many rows use cuBLASLt where this was found to move no bit (library_serving.h). So Describe does not
// mention it. Ranks that share a GPU do not use it: they would all try it at the same time, and disturb each other's
// timing.
// Errors: a machine that lacks something gives one line; a later failure ends the process (kernels/device_failure.h).
// Threads: one caller at a time, on any thread. This header includes no header of CUDA.
#pragma once

#include <span>

#include "kernels/backend_options.h"

namespace foretoken::kernels::cuda {

struct LibraryOptions;  // library_serving.h

MadeBackend MakeBackend(const BackendOptions& options);
// Makes a backend with another cuBLASLt than the machine's, or with another least row count for it. The row count must
// be larger than that of any recorded pass.
MadeBackend MakeBackendWithLibrary(const BackendOptions& options, const LibraryOptions& library);

// True if no two of these backends, which MakeBackend made, in the order of ranks, compute on one GPU.
bool HaveOwnDevices(std::span<Backend* const> backends);
// Connects such backends over the machine's NCCL.
MadeCommunicators MakeCommunicators(std::span<Backend* const> backends);

}  // namespace foretoken::kernels::cuda
