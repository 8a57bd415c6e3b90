// SPDX-License-Identifier: Apache-2.0
// One thread per element, neighbours side by side. Bytes moved: every expert's output once, and the sum.
#include "kernels/cuda/add_experts.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void AddElement(ExpertChoices choices, ConstTensorView outputs, TensorView out, int32_t num_chosen) {
  const int64_t num_columns = out.shape[1], column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= num_columns) return;
  float sum = 0;
  for (int32_t n = 0; n < num_chosen; ++n) {
    const int64_t choice = int64_t{blockIdx.x} * num_chosen + n;
    sum += choices.weights[choice] * outputs.as<float>()[choices.places[choice] * num_columns + column];
  }
  out.as<float>()[blockIdx.x * num_columns + column] = sum;
}

}  // namespace

void AddExperts(const ExpertChoices& choices, const ConstTensorView& outputs, const TensorView& out,
                cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(out.shape[0]), static_cast<unsigned>((out.shape[1] + kThreads - 1) / kThreads));
  FT_CUDA_CHECK(Launch(AddElement, {.grid = grid, .block = dim3(kThreads), .stream = stream}, choices, outputs, out,
                       static_cast<int32_t>(outputs.shape[0] / out.shape[0])));
}

}  // namespace foretoken::kernels::cuda
