// SPDX-License-Identifier: Apache-2.0
// A block covers some columns of one row, a thread every kThreads-th of them. Bytes moved: each once. The reads of a
// thread are on their way together. Beyond the row's end it reads the last column once more: a condition would put a
// branch between two reads.
#include <cmath>

#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/glu.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTogether = 4;  // columns of a thread

// The number y with f(x) = x / (1 + exp(-y)), or 1 / (1 + exp(-y)): tanh is a sigmoid, too.
__device__ float SigmoidInput(Activation activation, float x) {
  if (activation == Activation::kSilu || activation == Activation::kSigmoid) return x;
  if (activation == Activation::kGeluQuick) return x * 1.702f;
  return x * fmaf(x * x, 0.044715f, 1.0f) * 1.5957691f;  // 2 sqrt(2 / pi)
}

// Above 88 the exponential would overflow, and the quotient is below 1e-36.
__device__ float Gated(const Gating& gating, float gate, float up) {
  if (gating.limit.has_value()) {  // comparisons keep a value that is no number
    gate = gate > *gating.limit ? *gating.limit : gate;
    up = up > *gating.limit ? *gating.limit : up < -*gating.limit ? -*gating.limit : up;
  }
  if (gating.up_offset != 0) up += gating.up_offset;
  const float numerator = gating.activation == Activation::kSigmoid ? 1.0f : gate;
  return numerator / (expf(fminf(-SigmoidInput(gating.activation, gate), 88.0f)) + 1.0f) * up;
}

__global__ void GateColumns(GluArgs args) {
  const int64_t num_columns = args.out.shape[1];
  const int64_t row = blockIdx.x, first = int64_t{blockIdx.y} * kThreads * kTogether + threadIdx.x;
  const float* gate_up = args.gate_up.as<float>() + row * 2 * num_columns;
  float gates[kTogether], ups[kTogether];
#pragma unroll
  for (int i = 0; i < kTogether; ++i) {
    const int64_t column = first + i * kThreads < num_columns ? first + i * kThreads : num_columns - 1;
    gates[i] = gate_up[args.gating.is_interleaved ? 2 * column : column];
    ups[i] = gate_up[args.gating.is_interleaved ? 2 * column + 1 : num_columns + column];
  }
#pragma unroll
  for (int i = 0; i < kTogether; ++i) {
    const int64_t column = first + i * kThreads;
    if (column >= num_columns) break;
    args.out.as<uint16_t>()[row * num_columns + column] = Bf16FromFloat(Gated(args.gating, gates[i], ups[i]));
  }
}

}  // namespace

void Glu(const GluArgs& args, cudaStream_t stream) {
  const int64_t num_columns = args.out.shape[1];
  FT_CHECK(args.gate_up.dtype == DType::kF32 && args.out.dtype == DType::kBF16);
  FT_CHECK(args.gate_up.shape[1] == 2 * num_columns && args.gating.activation != Activation::kGelu);
  const dim3 grid(static_cast<unsigned>(args.out.shape[0]),
                  static_cast<unsigned>((num_columns + kThreads * kTogether - 1) / (kThreads * kTogether)));
  FT_CUDA_CHECK(Launch(GateColumns, {.grid = grid, .block = dim3(kThreads), .stream = stream}, args));
}

}  // namespace foretoken::kernels::cuda
