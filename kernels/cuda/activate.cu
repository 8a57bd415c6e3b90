// SPDX-License-Identifier: Apache-2.0
// One thread per output, neighbours side by side; a block covers kThreads columns of one row. Bytes moved: each once in
// and once out.
#include <cmath>

#include "kernels/check.h"
#include "kernels/cuda/activate.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ float Activated(Activation activation, float x) {
  if (activation == Activation::kGelu) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  if (activation == Activation::kGeluTanh)
    return x / (1.0f + expf(fminf(-x * (1.0f + 0.044715f * x * x) * 1.5957691f, 88.0f)));
  // Above 88 the exponential would overflow, and the quotient is below 1e-36.
  if (activation == Activation::kGeluQuick) return x / (1.0f + expf(fminf(-1.702f * x, 88.0f)));
  const float numerator = activation == Activation::kSigmoid ? 1.0f : x;
  return numerator / (1.0f + expf(fminf(-x, 88.0f)));
}

__global__ void ActivateRow(ActivateArgs args) {
  const int64_t num_columns = args.x.shape[1];
  const int64_t row = blockIdx.x, column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= num_columns) return;
  const int64_t i = row * num_columns + column;
  const float x = args.x.as<float>()[i] + (args.bias != nullptr ? args.bias[column] : 0.0f);
  const float y = Activated(args.activation, x);
  if (args.out.dtype == DType::kBF16) {
    args.out.as<uint16_t>()[i] = Bf16FromFloat(y);
  } else if (args.mode == OutputMode::kAdd) {
    args.out.as<float>()[i] += y;
  } else {
    args.out.as<float>()[i] = y;
  }
}

}  // namespace

void Activate(const ActivateArgs& args, cudaStream_t stream) {
  const int64_t num_columns = args.x.shape[1];
  const bool is_f32 = args.out.dtype == DType::kF32;
  FT_CHECK(args.x.dtype == DType::kF32 && args.x.shape == args.out.shape);
  FT_CHECK(is_f32 || (args.out.dtype == DType::kBF16 && args.mode == OutputMode::kStore));
  const dim3 grid(static_cast<unsigned>(args.x.shape[0]),
                  static_cast<unsigned>((num_columns + kThreads - 1) / kThreads));
  FT_CUDA_CHECK(Launch(ActivateRow, {.grid = grid, .block = dim3(kThreads), .stream = stream}, args));
}

}  // namespace foretoken::kernels::cuda
