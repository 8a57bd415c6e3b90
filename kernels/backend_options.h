// SPDX-License-Identifier: Apache-2.0
// The options of a backend, and the results of making backends and communicators.
#pragma once

#include <memory>
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

struct MadeBackend {
  std::unique_ptr<Backend> backend;  // null on an error
  std::string error;                 // what, expected and got
};

struct MadeCommunicators {
  std::vector<std::unique_ptr<Communicator>> communicators;  // by rank; none on an error
  std::string error;                                         // what, and whose words
};

}  // namespace foretoken::kernels
