// SPDX-License-Identifier: Apache-2.0
// FT_CUDA_CHECK(call): what the CUDA runtime is asked for after start may not fail. Says the place, the call, CUDA's
// words for the error, rank and GPU, and ends the process (kernels/device_failure.h). An error of a kernel shows in a
// later call, as CUDA's do.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace foretoken::kernels::cuda {

// Whom failures of the calling thread name from now on.
void SetFailingRank(int rank, int gpu);

struct FailedCall {
  const char* file = nullptr;
  int line = 0;
  const char* call = nullptr;
};
[[noreturn]] void EndOnFailedCall(const FailedCall& failed, cudaError_t error);
// Of a library that has words of its own.
[[noreturn]] void EndOnFailedCall(const FailedCall& failed, const std::string& words);

}  // namespace foretoken::kernels::cuda

#define FT_CUDA_CHECK(ft_call)                                                                                     \
  do {                                                                                                             \
    const cudaError_t ft_error = (ft_call);                                                                        \
    if (ft_error != cudaSuccess) [[unlikely]] {                                                                    \
      foretoken::kernels::cuda::EndOnFailedCall({.file = __FILE__, .line = __LINE__, .call = #ft_call}, ft_error); \
    }                                                                                                              \
  } while (false)
