// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "kernels/cuda/base/code_probe.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/base/ptx.cuh"

namespace foretoken::kernels::cuda {
namespace {

__global__ void Probe() {}

__global__ void ProbeGroupMma(bool* has) { *has = ptx::kHasGroupMma; }

// Clears the error, so that the next launch does not report it.
bool Failed(cudaError_t error) {
  if (error == cudaSuccess) return false;
  cudaGetLastError();
  return true;
}

}  // namespace

bool HasCodeForDevice() {
  cudaFuncAttributes attributes{};
  return !Failed(cudaFuncGetAttributes(&attributes, Probe));
}

bool HasGroupMma() {
  void* on_device = nullptr;
  if (Failed(cudaMalloc(&on_device, sizeof(bool)))) return false;
  bool has = false;
  const bool failed =
      Failed(Launch(ProbeGroupMma, {.grid = dim3(1), .block = dim3(1)}, static_cast<bool*>(on_device))) ||
      Failed(cudaMemcpy(&has, on_device, sizeof(has), cudaMemcpyDeviceToHost));
  return !Failed(cudaFree(on_device)) && !failed && has;
}

}  // namespace foretoken::kernels::cuda
