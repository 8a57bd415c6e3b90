// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/library_check.h"

#include <algorithm>

#include "kernels/cuda/base/check.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/matmul/trial_data.h"
#include "kernels/cuda/matmul/unpack_weight.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int64_t kOurRows = 256;  // computed at a time, so that no second output of full size is needed
constexpr uint32_t kWeightSeed = 1, kInputSeed = 2, kPreviousSeed = 3;

}  // namespace

LibraryCheck::LibraryCheck(int64_t num_outputs, int64_t num_inputs, Device& device)
    : device_(device),
      weight_({.num_outputs = num_outputs, .num_inputs = num_inputs},
              {.num_slices = static_cast<int32_t>(num_inputs / kSliceInputs), .num_splits = 1}, device),
      ours_(device.Allocate(kOurRows * num_outputs * sizeof(float))),
      differs_(device.Allocate(sizeof(uint32_t))) {
  const PackedWeight& packed = weight_.packed();  // random numbers may fill it in any order
  FillNormal({.data = reinterpret_cast<uint16_t*>(packed.data),
              .num_rows = packed.num_panels() * kPanelOutputs,
              .num_columns = num_inputs,
              .stride = num_inputs},
             kWeightSeed, device.stream());
}

bool LibraryCheck::HasOurBits(const LibraryMatMul& matmul, const cublaslt::Algorithm& algorithm,
                              const TrialMemory& memory) {
  const LibraryShape& shape = matmul.shape();
  const cudaStream_t stream = device_.stream();
  UnpackRows(weight_.packed(), {0, shape.num_outputs}, memory.weight_rows, stream);
  FillInputs(
      {.data = memory.x, .num_rows = shape.num_rows, .num_columns = shape.num_inputs, .stride = shape.num_inputs},
      kInputSeed, stream);
  FT_CUDA_CHECK(cudaMemsetAsync(differs_.get(), 0, sizeof(uint32_t), stream));
  for (const OutputMode mode : {OutputMode::kStore, OutputMode::kAdd}) {
    FillNormal(MatrixRows<float>{memory.out, shape.num_rows, shape.num_outputs, shape.out_stride}, 0, kPreviousSeed,
               stream);
    const int status =
        matmul.Multiply({.x = memory.x, .weight_rows = memory.weight_rows, .out = memory.out, .mode = mode}, algorithm);
    if (status != cublaslt::kSuccess) return false;
    CompareWithOurs(memory.x, shape, memory.out, mode);
  }
  uint32_t differs = 1;
  device_.Copy(&differs, differs_.get(), sizeof(differs), CopyKind::kToHost);
  device_.Synchronize();
  return differs == 0;
}

void LibraryCheck::CompareWithOurs(const uint16_t* x, const LibraryShape& shape, const float* out, OutputMode mode) {
  auto* const ours = static_cast<float*>(ours_.get());
  for (int64_t first = 0; first < shape.num_rows; first += kOurRows) {
    const int64_t num_rows = std::min(kOurRows, shape.num_rows - first), num_outputs = shape.num_outputs;
    FillNormal(MatrixRows<float>{ours, num_rows, num_outputs, num_outputs}, first, kPreviousSeed, device_.stream());
    MatMul({.x = {x + first * shape.num_inputs, DType::kBF16, Shape(num_rows, shape.num_inputs)},
            .weight = &weight_,
            .mode = mode,
            .out = {ours, DType::kF32, Shape(num_rows, num_outputs)}},
           device_.stream());
    CompareBits({ours, num_rows, num_outputs, num_outputs},
                {out + first * shape.out_stride, num_rows, num_outputs, shape.out_stride},
                static_cast<uint32_t*>(differs_.get()), device_.stream());
  }
}

}  // namespace foretoken::kernels::cuda
