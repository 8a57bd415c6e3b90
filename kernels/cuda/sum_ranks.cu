// SPDX-License-Identifier: Apache-2.0
// One thread per element, neighbours side by side. Bytes moved: every piece once, the output once or twice.
#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/sum_ranks.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void SumElement(SumRanksArgs args, int64_t num_elements) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= num_elements) return;
  const float* piece = args.pieces.as<float>();
  float sum = piece[i];
  for (int64_t rank = 1; rank < args.pieces.shape[0]; ++rank) sum += piece[rank * num_elements + i];
  float* out = args.out.as<float>() + i;
  sum *= args.scale;
  *out = args.mode == OutputMode::kAdd ? *out + sum : sum;
}

}  // namespace

void SumRanks(const SumRanksArgs& args, cudaStream_t stream) {
  const int64_t num_elements = args.out.shape.num_elements();
  FT_CHECK(args.pieces.dtype == DType::kF32 && args.out.dtype == DType::kF32 && args.pieces.shape[0] > 0);
  FT_CHECK(args.pieces.shape == Shape(args.pieces.shape[0], args.out.shape[0], args.out.shape[1]));
  const auto num_blocks = static_cast<unsigned>((num_elements + kThreads - 1) / kThreads);
  FT_CUDA_CHECK(
      Launch(SumElement, {.grid = dim3(num_blocks), .block = dim3(kThreads), .stream = stream}, args, num_elements));
}

}  // namespace foretoken::kernels::cuda
