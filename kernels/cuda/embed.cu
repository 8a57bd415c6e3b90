// SPDX-License-Identifier: Apache-2.0
// A block per row, its threads side by side along the columns. Bytes moved: the row once in, twice its size out.
#include "kernels/check.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/weight.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void EmbedRow(EmbedArgs args, const uint16_t* weight, int64_t num_tokens) {
  const int64_t row = blockIdx.x;
  const int64_t num_columns = args.out.shape[1];
  const int64_t token_id = args.token_ids[row];
  if (token_id < 0 || token_id >= num_tokens) __trap();
  const uint16_t* from = weight + token_id * num_columns;
  float* out = args.out.as<float>() + row * num_columns;
  for (int64_t i = threadIdx.x; i < num_columns; i += kThreads) out[i] = FloatFromBf16(from[i]);
}

}  // namespace

void Embed(const EmbedArgs& args, cudaStream_t stream) {
  const CudaWeight& weight = AsCudaWeight(args.weight);
  FT_CHECK(args.out.dtype == DType::kF32 && args.out.shape.rank == 2 && args.out.shape[1] == weight.in_features());
  const auto num_rows = static_cast<unsigned>(args.out.shape[0]);
  FT_CUDA_CHECK(Launch(EmbedRow, {.grid = dim3(num_rows), .block = dim3(kThreads), .stream = stream}, args,
                       weight.data(), weight.out_features()));
}

}  // namespace foretoken::kernels::cuda
