// SPDX-License-Identifier: Apache-2.0
// FT_CUDA_CHECK(call): a call of the CUDA runtime after start may not fail. If it fails, this prints the place, the
// call, CUDA's error text, the rank and the GPU, and ends the process (kernels/device_failure.h). As with all CUDA
// calls, an error of a kernel shows in a later call.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace foretoken::kernels::cuda {

// Failures on the calling thread name this rank and GPU from now on.
void SetFailingRank(int rank, int gpu);

struct FailedCall {
  const char* file = nullptr;
  int line = 0;
  const char* call = nullptr;
};
[[noreturn]] void EndOnFailedCall(const FailedCall& failed, cudaError_t error);
// For a library with error texts of its own.
[[noreturn]] void EndOnFailedCall(const FailedCall& failed, const std::string& words);

}  // namespace foretoken::kernels::cuda

#define FT_CUDA_CHECK(ft_call)                                                                                     \
  do {                                                                                                             \
    const cudaError_t ft_error = (ft_call);                                                                        \
    if (ft_error != cudaSuccess) [[unlikely]] {                                                                    \
      foretoken::kernels::cuda::EndOnFailedCall({.file = __FILE__, .line = __LINE__, .call = #ft_call}, ft_error); \
    }                                                                                                              \
  } while (false)
