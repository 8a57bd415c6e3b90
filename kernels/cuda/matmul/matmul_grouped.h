// SPDX-License-Identifier: Apache-2.0
// Products of rows with one of several matrices each, in one kernel: a grouped product. The rows of a matrix stand
// together. A tile is some of them, and the tiles lie in device memory, so that the device itself may say which rows
// belong to which matrix. A row's sums are those of MatMul with its matrix, bit for bit.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/base/device.h"
#include "kernels/cuda/matmul/matrix_unit.h"
#include "kernels/cuda/matmul/numeric_class.h"
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

  int64_t out_features() const { return out_features_; }
  int64_t in_features() const { return in_features_; }
  int64_t num_panels() const { return num_panels_; }
  const NumericClass& numeric_class() const { return numeric_class_; }
  MatrixUnit matrix_unit() const { return matrix_unit_; }
  std::span<const WeightFormat> formats() const { return formats_; }  // of the members, each once
  const GroupedMatrix* matrices() const { return static_cast<const GroupedMatrix*>(matrices_.get()); }
  uint32_t* arrivals() const { return static_cast<uint32_t*>(arrivals_.get()); }  // as CudaWeight::arrivals

 private:
  int64_t out_features_;
  int64_t in_features_;
  int64_t num_panels_;
  NumericClass numeric_class_;
  MatrixUnit matrix_unit_;
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
