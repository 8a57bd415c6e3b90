// SPDX-License-Identifier: Apache-2.0
// FT_CUDA_CHECK(call): what the CUDA runtime is asked for after start may not fail. Prints the place, the call and
// CUDA's words for the error, and ends the process: its supervisor restarts it. An error of a kernel shows in a later
// call, as CUDA's do.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define FT_CUDA_CHECK(call)                                                                                 \
  do {                                                                                                      \
    const cudaError_t ft_error = (call);                                                                    \
    if (ft_error != cudaSuccess) [[unlikely]] {                                                             \
      std::fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call, cudaGetErrorString(ft_error), \
                   cudaGetErrorName(ft_error));                                                             \
      std::abort();                                                                                         \
    }                                                                                                       \
  } while (false)
