// SPDX-License-Identifier: Apache-2.0
// Enqueues a kernel: FT_CUDA_CHECK(Launch(Kernel, {.grid = dim3(8), .block = dim3(256), .stream = stream}, args...)).
// It is a plain call in place of <<<>>>, so that it returns the launch's error and any C++ compiler can read it. For an
// empty grid it does nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace foretoken::kernels::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // the kernel gets it from ptx::DynamicSharedMemory
  cudaStream_t stream = nullptr;
};

template <typename... Params, typename... Args>
cudaError_t Launch(void (*kernel)(Params...), const LaunchShape& shape, Args... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0) return cudaSuccess;
  // A kernel that uses more than 48 KiB, static memory included, must ask for them. Launch does not know the static
  // memory, so it asks for any size.
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
