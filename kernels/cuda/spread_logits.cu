// SPDX-License-Identifier: Apache-2.0
// One block per row, which first fills the row and then writes the known ids. Bytes moved: the row once out, the known
// logits once in and once out.
#include <cmath>

#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/spread_logits.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void SpreadRow(SpreadLogitsArgs args) {
  const int64_t num_known = args.logits.shape[1], num_ids = args.out.shape[1];
  const float* logits = args.logits.as<float>() + blockIdx.x * num_known;
  float* out = args.out.as<float>() + blockIdx.x * num_ids;
  for (int64_t id = threadIdx.x; id < num_ids; id += kThreads) out[id] = -INFINITY;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < num_known; i += kThreads) out[args.token_ids[i]] = logits[i];
}

}  // namespace

void SpreadLogits(const SpreadLogitsArgs& args, cudaStream_t stream) {
  FT_CHECK(args.logits.dtype == DType::kF32 && args.out.dtype == DType::kF32);
  FT_CHECK(args.logits.shape[0] == args.out.shape[0] && args.logits.shape[1] <= args.out.shape[1]);
  const auto num_rows = static_cast<unsigned>(args.out.shape[0]);
  FT_CUDA_CHECK(Launch(SpreadRow, {.grid = dim3(num_rows), .block = dim3(kThreads), .stream = stream}, args));
}

}  // namespace foretoken::kernels::cuda
