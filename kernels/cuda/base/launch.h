// SPDX-License-Identifier: Apache-2.0
// Enqueues a kernel: FT_CUDA_CHECK(Launch(Kernel, {.grid = dim3(8), .block = dim3(256), .stream = stream}, args...)).
// A plain call in place of <<<>>>, so that its error is returned and any C++ compiler can read it. An empty grid is no
// launch.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace foretoken::kernels::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // that the kernel finds with ptx::DynamicSharedMemory
  cudaStream_t stream = nullptr;
};

template <typename... Params, typename... Args>
cudaError_t Launch(void (*kernel)(Params...), const LaunchShape& shape, Args... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0) return cudaSuccess;
  // More than 48 KiB has to be asked for, which counts what the kernel has beside: so whatever it is, it is asked for.
  if (shape.shared_bytes > 0) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

}  // namespace foretoken::kernels::cuda
