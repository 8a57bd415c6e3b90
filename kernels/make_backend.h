// SPDX-License-Identifier: Apache-2.0
// Makes the backend that the options name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace foretoken::kernels {

struct BackendOptions {
  std::string device = "cpu";  // or "cuda", where the build has it
  int num_threads = 0;         // cpu: the caller's thread included; 0: one per core this process may run on
  std::string isa = "auto";    // cpu: "auto" takes the best of SupportedCpuIsas()
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

}  // namespace foretoken::kernels
