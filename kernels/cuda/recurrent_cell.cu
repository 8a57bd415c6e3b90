// SPDX-License-Identifier: Apache-2.0
// One thread per number of the state, neighbours side by side; a block covers kThreads columns of one row. Bytes moved:
// each once in and once out.
#include <cmath>

#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/recurrent_cell.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void StepCells(RecurrentCellArgs args) {
  const int64_t num_columns = args.state.shape[1];
  const int64_t row = blockIdx.x, column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= num_columns) return;
  const float* gates = args.gates.as<float>() + row * 3 * num_columns;
  float& state = args.state.as<float>()[row * num_columns + column];
  const float kept = 1.0f / (1.0f + expf(fminf(-gates[column], 88.0f)));  // above 88 it would overflow
  state = kept * state + (1.0f - kept) * tanhf(gates[num_columns + column]);
  args.out.as<uint16_t>()[row * num_columns + column] = Bf16FromFloat(tanhf(gates[2 * num_columns + column]));
}

}  // namespace

void RecurrentCell(const RecurrentCellArgs& args, cudaStream_t stream) {
  const int64_t num_columns = args.state.shape[1];
  FT_CHECK(args.gates.dtype == DType::kF32 && args.state.dtype == DType::kF32 && args.out.dtype == DType::kBF16);
  FT_CHECK(args.gates.shape == Shape(args.state.shape[0], 3 * num_columns) && args.out.shape == args.state.shape);
  const dim3 grid(static_cast<unsigned>(args.state.shape[0]),
                  static_cast<unsigned>((num_columns + kThreads - 1) / kThreads));
  FT_CUDA_CHECK(Launch(StepCells, {.grid = grid, .block = dim3(kThreads), .stream = stream}, args));
}

}  // namespace foretoken::kernels::cuda
