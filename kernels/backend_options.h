// SPDX-License-Identifier: Apache-2.0
// The options of a backend, and the results of making backends and communicators.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/communicator.h"

namespace foretoken::kernels {

// How matrices are kept, and what they multiply: Quantization in ops.h, as flags say it. And how K/V is kept.
struct QuantizationOptions {
  std::string weights = "none";      // of the layers: "none", "int8", "int4", or "fp8" on cuda
  std::string head = "none";         // of the vocabulary's matrices: "none", "int8" or "int4"
  int group_size = 32;               // inputs that share a scale, for int8 and int4: 32, 64 or 128
  std::string activations = "none";  // or "int8" on cpu: of rows that matrices of integers multiply
  std::string kv_cache = "bf16";     // or "int8" or "fp8": of K and V, KvCacheDtype in kv_cache.h
};

struct BackendOptions {
  std::string device = "cpu";  // or "cuda", where the build has it
  int num_threads = 0;         // cpu: counts the caller's thread; 0: NumCpuThreads in make_backend.h
  std::string isa = "auto";    // cpu: "auto" takes the best of SupportedCpuIsas()
  QuantizationOptions quantization;
  // This backend's tensor-parallel rank among the ranks of this process. On a CPU the ranks share the threads, at least
  // one each; on GPUs they share the GPUs.
  int rank = 0;
  int num_ranks = 1;
};

struct MadeBackend {
  std::unique_ptr<Backend> backend;  // null on an error
  std::string error;                 // says the fault, the expected value and the given one
};

struct MadeCommunicators {
  std::vector<std::unique_ptr<Communicator>> communicators;  // by rank; empty on an error
  std::string error;                                         // says the fault and the library that reported it
};

}  // namespace foretoken::kernels
