// SPDX-License-Identifier: Apache-2.0
// One block per row. Bytes moved: every element once in, once out.
#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/copy_rows.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ float Load(const ConstTensorView& view, int64_t i) {
  return view.dtype == DType::kF32 ? view.as<float>()[i] : FloatFromBf16(view.as<uint16_t>()[i]);
}

__device__ void Store(const TensorView& view, int64_t i, float value) {
  if (view.dtype == DType::kF32) {
    view.as<float>()[i] = value;
  } else {
    view.as<uint16_t>()[i] = Bf16FromFloat(value);
  }
}

__global__ void CopyRow(CopyRowsArgs args) {
  const int64_t num_columns = args.x.shape[1];
  const int64_t from = args.from != nullptr ? args.from[blockIdx.x] : blockIdx.x;
  const int64_t to = args.to != nullptr ? args.to[blockIdx.x] : blockIdx.x;
  const int64_t out = to * args.out.shape[1] + args.first_column;
  for (int64_t c = threadIdx.x; c < num_columns; c += kThreads) {
    Store(args.out, out + c, Load(args.x, from * num_columns + c));
  }
}

}  // namespace

void CopyRows(const CopyRowsArgs& args, cudaStream_t stream) {
  FT_CHECK(args.first_column >= 0 && args.first_column + args.x.shape[1] <= args.out.shape[1]);
  for (const DType dtype : {args.x.dtype, args.out.dtype}) FT_CHECK(dtype == DType::kF32 || dtype == DType::kBF16);
  if (args.num_rows == 0) return;
  const auto num_rows = static_cast<unsigned>(args.num_rows);
  FT_CUDA_CHECK(Launch(CopyRow, {.grid = dim3(num_rows), .block = dim3(kThreads), .stream = stream}, args));
}

}  // namespace foretoken::kernels::cuda
