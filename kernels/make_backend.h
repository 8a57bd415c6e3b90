// SPDX-License-Identifier: Apache-2.0
// Makes the backend that the options name.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/backend_options.h"

namespace foretoken::kernels {

// The CPU paths that this machine can run, best first: a subset of "amx", "avx512_bf16", "avx512_vnni", "avx512",
// "avx_vnni", "avx2", "baseline".
std::vector<std::string> SupportedCpuIsas();

// The threads that BackendOptions::num_threads stands for, of all ranks together. 0 stands for one per core that this
// process may run on, but not more than the whole cores of a container's quota.
int NumCpuThreads(int num_threads);

MadeBackend MakeBackend(const BackendOptions& options);

// Connects tensor-parallel ranks whose backends were made for this device: over NCCL if each rank has a GPU of its own,
// else as threads of one process (thread_communicator.h). The backends must outlive the communicators.
MadeCommunicators MakeCommunicators(const std::string& device, std::span<Backend* const> backends);

}  // namespace foretoken::kernels
