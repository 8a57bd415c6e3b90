// SPDX-License-Identifier: Apache-2.0
// One thread per element, neighbours side by side. Bytes moved: each once in and once out.
#include <cmath>

#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/cap_logits.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void CapElement(CapLogitsArgs args) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.logits.shape.num_elements()) return;
  float* logit = args.logits.as<float>() + i;
  *logit *= args.scale;
  if (args.cap.has_value()) *logit = *args.cap * tanhf(*logit / *args.cap);
}

}  // namespace

void CapLogits(const CapLogitsArgs& args, cudaStream_t stream) {
  FT_CHECK(args.logits.dtype == DType::kF32 && (!args.cap.has_value() || *args.cap > 0));
  const auto num_blocks = static_cast<unsigned>((args.logits.shape.num_elements() + kThreads - 1) / kThreads);
  FT_CUDA_CHECK(Launch(CapElement, {.grid = dim3(num_blocks), .block = dim3(kThreads), .stream = stream}, args));
}

}  // namespace foretoken::kernels::cuda
