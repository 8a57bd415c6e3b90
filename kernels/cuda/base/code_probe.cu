// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "kernels/cuda/base/code_probe.h"

namespace foretoken::kernels::cuda {
namespace {

__global__ void Probe() {}

}  // namespace

bool HasCodeForDevice() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, Probe) == cudaSuccess) return true;
  cudaGetLastError();  // clears the error, so that the next launch does not report it
  return false;
}

}  // namespace foretoken::kernels::cuda
