// SPDX-License-Identifier: Apache-2.0
// One block per row, with its threads side by side along the columns.
// Bytes moved: the row in, twice its size, because it lies in pieces of 64 bytes beside another row's pieces
// (weight_layout.h); and twice its size out. A few rows take as long as their reads wait for memory, so a thread starts
// several reads before it needs the first. A condition would put a branch between two reads, so a thread reads the last
// column beyond the row's end, and the weight's first row for an id that another rank holds.
#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/matmul/weight.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTogether = 16;  // columns of a thread that are read together

// The weight has the rows of ids from first_token_id on. If `is_part`, other ids give zeros.
struct HeldRows {
  PackedWeight weight;
  int64_t first_token_id;
  bool is_part;
};

__global__ void EmbedRow(HeldRows held, const int32_t* token_ids, float* out, int64_t num_columns) {
  const int64_t row = blockIdx.x;
  const int64_t held_row = token_ids[row] - held.first_token_id;
  const bool is_held = held_row >= 0 && held_row < held.weight.num_outputs;
  if (!is_held && !held.is_part) __trap();
  for (int64_t begin = threadIdx.x; begin < num_columns; begin += kTogether * kThreads) {
    float values[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int64_t column = begin + i * kThreads;
      values[i] = held.weight.Element(is_held ? held_row : 0, column < num_columns ? column : num_columns - 1);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int64_t column = begin + i * kThreads;
      if (column < num_columns) out[row * num_columns + column] = is_held ? values[i] : 0.0f;
    }
  }
}

}  // namespace

void Embed(const EmbedArgs& args, cudaStream_t stream) {
  const CudaWeight& weight = AsCudaWeight(args.weight);
  FT_CHECK(args.out.dtype == DType::kF32 && args.out.shape.rank == 2 && args.out.shape[1] == weight.in_features());
  const auto num_rows = static_cast<unsigned>(args.out.shape[0]);
  const HeldRows held{.weight = weight.packed(),
                      .first_token_id = args.first_token_id.value_or(0),
                      .is_part = args.first_token_id.has_value()};
  FT_CUDA_CHECK(Launch(EmbedRow, {.grid = dim3(num_rows), .block = dim3(kThreads), .stream = stream}, held,
                       args.token_ids, args.out.as<float>(), weight.in_features()));
}

}  // namespace foretoken::kernels::cuda
