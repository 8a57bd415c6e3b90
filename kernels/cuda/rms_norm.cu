// SPDX-License-Identifier: Apache-2.0
// The norm: one block per output row. Bytes moved: the row in once (twice if it is long, the second time from a cache),
// half its size out. Mean squares: one block per row and part. Bytes moved: the row once in.
// A few rows take as long as their reads wait for memory, so a thread starts many reads before it needs the first.
// Beyond the row's end it reads the last column once more: a condition would put a branch between two reads.
#include <cmath>

#include "kernels/check.h"
#include "kernels/cuda/base/block_sum.cuh"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/rms_norm.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Columns of a thread that are read together.
constexpr int kTogether = 16;

__device__ int64_t ColumnOf(int64_t begin, int i) { return begin + int64_t{i} * kThreads; }

__device__ void Read(const float* from, int64_t begin, int64_t num_columns, float (&values)[kTogether]) {
#pragma unroll
  for (int i = 0; i < kTogether; ++i) {
    values[i] = from[ColumnOf(begin, i) < num_columns ? ColumnOf(begin, i) : num_columns - 1];
  }
}

// `first` has the values of the thread's first columns.
__device__ float MeanSquare(const float* x, int64_t num_columns, const float (&first)[kTogether]) {
  __shared__ float scratch[kThreads];
  float sum = 0;
  const auto add = [&](int64_t begin, const float(&values)[kTogether]) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const float value = ColumnOf(begin, i) < num_columns ? values[i] : 0;
      sum = fmaf(value, value, sum);
    }
  };
  add(threadIdx.x, first);
  for (int64_t begin = threadIdx.x + kTogether * kThreads; begin < num_columns; begin += kTogether * kThreads) {
    float values[kTogether];
    Read(x, begin, num_columns, values);
    add(begin, values);
  }
  return BlockSum<kThreads>(sum, scratch) / static_cast<float>(num_columns);
}

__global__ void __launch_bounds__(kThreads) NormRow(RmsNormArgs args) {
  const int64_t num_columns = args.out.shape[1];
  const int64_t row = args.rows != nullptr ? args.rows[blockIdx.x] : blockIdx.x;
  const float* x = args.x.as<float>() + row * num_columns;
  const int64_t first = blockIdx.x * num_columns;
  const bool adds = args.mode == OutputMode::kAdd;
  float values[kTogether], gains[kTogether], present[kTogether];
  const auto read = [&](int64_t begin) {
    Read(x, begin, num_columns, values);
    Read(args.gain, begin, num_columns, gains);
    if (adds) Read(args.out.as<float>() + first, begin, num_columns, present);
  };
  read(threadIdx.x);
  const float inverse = 1.0f / sqrtf(MeanSquare(x, num_columns, values) + args.eps);
  for (int64_t begin = threadIdx.x; begin < num_columns;) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int64_t c = ColumnOf(begin, i);
      if (c >= num_columns) continue;
      const float normed = values[i] * inverse * gains[i];
      if (adds) {
        args.out.as<float>()[first + c] = present[i] + normed;
      } else {
        args.out.as<uint16_t>()[first + c] = Bf16FromFloat(normed);
      }
    }
    begin += kTogether * kThreads;
    if (begin < num_columns) read(begin);
  }
}

__global__ void MeanSquaresOfPart(MeanSquaresArgs args) {
  const int64_t row = blockIdx.x, part = blockIdx.y;
  const float* x = args.x.as<float>() + row * args.x.shape[1] + part * args.widths[0];
  float first[kTogether];
  Read(x, threadIdx.x, args.widths[part], first);
  const float mean = MeanSquare(x, args.widths[part], first);
  if (threadIdx.x == 0) args.out.as<float>()[2 * row + part] = mean;
}

}  // namespace

void RmsNorm(const RmsNormArgs& args, cudaStream_t stream) {
  FT_CHECK(args.x.dtype == DType::kF32 && args.x.shape[1] == args.out.shape[1]);
  FT_CHECK(args.out.dtype == (args.mode == OutputMode::kAdd ? DType::kF32 : DType::kBF16));
  const auto num_rows = static_cast<unsigned>(args.out.shape[0]);
  FT_CUDA_CHECK(Launch(NormRow, {.grid = dim3(num_rows), .block = dim3(kThreads), .stream = stream}, args));
}

void MeanSquares(const MeanSquaresArgs& args, cudaStream_t stream) {
  const int64_t num_rows = args.x.shape[0];
  FT_CHECK(args.x.dtype == DType::kF32 && args.x.shape[1] >= args.widths[0] + args.widths[1]);
  FT_CHECK(args.out.dtype == DType::kF32 && args.out.shape == Shape(num_rows, 2));
  const dim3 grid(static_cast<unsigned>(num_rows), 2);
  FT_CUDA_CHECK(Launch(MeanSquaresOfPart, {.grid = grid, .block = dim3(kThreads), .stream = stream}, args));
}

}  // namespace foretoken::kernels::cuda
