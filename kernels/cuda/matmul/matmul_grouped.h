// SPDX-License-Identifier: Apache-2.0
// A grouped product: one kernel multiplies each row by one of several matrices. The rows of a matrix stand together. A
// tile is some of them. The tiles lie in device memory, so a kernel may decide which matrix a row is multiplied by. The
// product gives a row the same bits as MatMul with the row's matrix.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/base/device.h"
#include "kernels/cuda/matmul/weight.h"
#include "kernels/cuda/matmul/weight_layout.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

struct GroupedMatrix {
  PackedWeight weight;
  const float* bias = nullptr;  // [N], or null
};

// Matrices of one shape, which may have different formats.
class MatrixGroup {
 public:
  struct Member {
    const Weight* weight = nullptr;
    const float* bias = nullptr;  // [N], or null
  };
  // The weights and biases must live as long as the group.
  MatrixGroup(std::span<const Member> members, Device& device);

  const CudaWeight& first() const { return *first_; }                 // has the shape and the numeric class of all
  std::span<const WeightFormat> formats() const { return formats_; }  // of the members, each once
  const GroupedMatrix* matrices() const { return static_cast<const GroupedMatrix*>(matrices_.get()); }
  uint32_t* arrivals() const { return static_cast<uint32_t*>(arrivals_.get()); }  // as CudaWeight::arrivals

 private:
  const CudaWeight* first_;
  std::vector<WeightFormat> formats_;
  Buffer matrices_;  // [members]
  Buffer arrivals_;
};

struct GroupedTile {
  int32_t matrix = 0;
  int32_t first_row = 0;
  int32_t num_rows = 0;  // 0: there is no such tile
};

struct GroupedMatMulArgs {
  ConstTensorView x;  // [P, K] bf16
  const MatrixGroup* group = nullptr;
  const GroupedTile* tiles = nullptr;  // [num_tiles]; together they have each row once
  int32_t num_tiles = 0;
  int32_t max_tile_rows = 0;  // 8, 16, 32 or 64
  TensorView out;             // [P, N] f32
};

void MatMulGrouped(const GroupedMatMulArgs& args, cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
