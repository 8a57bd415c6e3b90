// SPDX-License-Identifier: Apache-2.0
// One thread per output, neighbours side by side; a block covers kThreads columns of one row. Bytes moved: each once.
#include <cmath>

#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/glu.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// The number y with f(x) = x / (1 + exp(-y)): tanh is a sigmoid, too.
__device__ float SigmoidInput(Activation activation, float x) {
  if (activation == Activation::kSilu) return x;
  if (activation == Activation::kGeluQuick) return x * 1.702f;
  return x * fmaf(x * x, 0.044715f, 1.0f) * 1.5957691f;  // 2 sqrt(2 / pi)
}

// Above 88 the exponential would overflow, and the quotient is below 1e-36.
__global__ void GateColumn(GluArgs args) {
  const int64_t num_columns = args.out.shape[1];
  const int64_t row = blockIdx.x, column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= num_columns) return;
  const float* gate_up = args.gate_up.as<float>() + row * 2 * num_columns;
  const Gating& gating = args.gating;
  float gate = gate_up[gating.is_interleaved ? 2 * column : column];
  float up = gate_up[gating.is_interleaved ? 2 * column + 1 : num_columns + column];
  if (gating.limit.has_value()) {  // comparisons keep a value that is no number
    gate = gate > *gating.limit ? *gating.limit : gate;
    up = up > *gating.limit ? *gating.limit : up < -*gating.limit ? -*gating.limit : up;
  }
  if (gating.up_offset != 0) up += gating.up_offset;
  const float gated = gate / (expf(fminf(-SigmoidInput(gating.activation, gate), 88.0f)) + 1.0f);
  args.out.as<uint16_t>()[row * num_columns + column] = Bf16FromFloat(gated * up);
}

}  // namespace

void Glu(const GluArgs& args, cudaStream_t stream) {
  const int64_t num_columns = args.out.shape[1];
  FT_CHECK(args.gate_up.dtype == DType::kF32 && args.out.dtype == DType::kBF16);
  FT_CHECK(args.gate_up.shape[1] == 2 * num_columns && args.gating.activation != Activation::kGelu);
  const dim3 grid(static_cast<unsigned>(args.out.shape[0]),
                  static_cast<unsigned>((num_columns + kThreads - 1) / kThreads));
  FT_CUDA_CHECK(Launch(GateColumn, {.grid = grid, .block = dim3(kThreads), .stream = stream}, args));
}

}  // namespace foretoken::kernels::cuda
