// SPDX-License-Identifier: Apache-2.0
// Makes the backend that the options name.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/communicator.h"

namespace foretoken::kernels {

struct BackendOptions {
  std::string device = "cpu";  // or "cuda", where the build has it
  int num_threads = 0;         // cpu: the caller's thread included; 0: one per core this process may run on
  std::string isa = "auto";    // cpu: "auto" takes the best of SupportedCpuIsas()
  std::string weight_quantization = "none";  // or "fp8", on cuda
  // For which of how many tensor-parallel ranks of this process: they share the threads, and have one each at least, or
  // the GPUs.
  int rank = 0;
  int num_ranks = 1;
};

// The CPU paths that this machine can run, best first, of "amx", "avx512_bf16", "avx512", "avx2", "baseline".
std::vector<std::string> SupportedCpuIsas();

struct MadeBackend {
  std::unique_ptr<Backend> backend;  // null on an error
  std::string error;                 // what, expected and got
};

MadeBackend MakeBackend(const BackendOptions& options);

struct MadeCommunicators {
  std::vector<std::unique_ptr<Communicator>> communicators;  // by rank; none on an error
  std::string error;                                         // what, and whose words
};

// How tensor-parallel ranks reach each other, whose backends were made for this device: over NCCL where each has a GPU
// of its own, else as threads of one process (thread_communicator.h). Backends outlive them.
MadeCommunicators MakeCommunicators(const std::string& device, std::span<Backend* const> backends);

}  // namespace foretoken::kernels
