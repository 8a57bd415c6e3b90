// SPDX-License-Identifier: Apache-2.0
// A block makes a tile of 64 outputs by 16 or 64 rows, its 256 threads as 16 by 16; a thread has 4 outputs by 1 or 4
// rows, each its own chain. Ranges of 32 inputs are widened into shared memory, where every value is used by a whole
// row or column of the tile. Bytes moved: the weight once per tile of rows. Up to 16 rows take the low tile, which
// spares arithmetic on rows that are not there; the height of a tile says which chains stand side by side, never what a
// chain is.
#include <cmath>

#include "kernels/check.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/weight.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kSide = 16;  // threads along a side of the tile
constexpr int kThreads = kSide * kSide;
constexpr int kOutputsPerThread = 4;
constexpr int kTileOutputs = kSide * kOutputsPerThread;
constexpr int kTileInputs = 32;

// A row-major matrix of bf16.
struct Bf16Matrix {
  const uint16_t* data = nullptr;
  int64_t num_rows = 0;
  int64_t num_columns = 0;
};

// Widens rows [first_row, first_row + kRows) and columns [first_column, first_column + kTileInputs), zero beyond the
// matrix. The odd width keeps threads that walk down a column out of each other's banks.
template <int kRows>
__device__ void LoadTile(const Bf16Matrix& from, int64_t first_row, int64_t first_column,
                         float (*tile)[kTileInputs + 1]) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kTileInputs; i += kThreads) {
    const int64_t row = first_row + i / kTileInputs, column = first_column + i % kTileInputs;
    const bool is_inside = row < from.num_rows && column < from.num_columns;
    tile[i / kTileInputs][i % kTileInputs] =
        is_inside ? FloatFromBf16(from.data[row * from.num_columns + column]) : 0.0f;
  }
}

__device__ void StoreSum(const MatMulArgs& args, int64_t row, int64_t output, float sum) {
  const int64_t num_rows = args.out.shape[0], num_outputs = args.out.shape[1];
  if (row >= num_rows || output >= num_outputs) return;
  if (args.bias != nullptr) sum += args.bias[output];
  float* out = args.out.as<float>() + row * num_outputs + output;
  *out = args.mode == OutputMode::kAdd ? *out + sum : sum;
}

template <int kRowsPerThread>
__global__ void __launch_bounds__(kThreads) MatMulTile(MatMulArgs args, Bf16Matrix x, Bf16Matrix weight) {
  constexpr int kTileRows = kSide * kRowsPerThread;
  __shared__ float x_tile[kTileRows][kTileInputs + 1];
  __shared__ float weight_tile[kTileOutputs][kTileInputs + 1];
  const int thread_x = static_cast<int>(threadIdx.x) % kSide, thread_y = static_cast<int>(threadIdx.x) / kSide;
  const int64_t first_output = int64_t{blockIdx.x} * kTileOutputs, first_row = int64_t{blockIdx.y} * kTileRows;
  float sums[kRowsPerThread][kOutputsPerThread] = {};
  for (int64_t first_input = 0; first_input < x.num_columns; first_input += kTileInputs) {
    LoadTile<kTileRows>(x, first_row, first_input, x_tile);
    LoadTile<kTileOutputs>(weight, first_output, first_input, weight_tile);
    __syncthreads();
    // Inputs beyond the last are no zeros in a sum: a chain has as many terms as the weight has inputs.
    const int64_t rest = x.num_columns - first_input;
    const int depth = rest < kTileInputs ? static_cast<int>(rest) : kTileInputs;
    for (int k = 0; k < depth; ++k) {
      for (int r = 0; r < kRowsPerThread; ++r) {
        const float value = x_tile[thread_y + r * kSide][k];
        for (int n = 0; n < kOutputsPerThread; ++n) {
          sums[r][n] = fmaf(value, weight_tile[thread_x + n * kSide][k], sums[r][n]);
        }
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < kRowsPerThread; ++r) {
    for (int n = 0; n < kOutputsPerThread; ++n) {
      StoreSum(args, first_row + thread_y + r * kSide, first_output + thread_x + n * kSide, sums[r][n]);
    }
  }
}

unsigned NumTiles(int64_t count, int64_t tile) { return static_cast<unsigned>((count + tile - 1) / tile); }

template <int kRowsPerThread>
void LaunchTiles(const MatMulArgs& args, cudaStream_t stream) {
  const CudaWeight& weight = AsCudaWeight(args.weight);
  const int64_t num_rows = args.x.shape[0], num_inputs = args.x.shape[1], num_outputs = weight.out_features();
  const Bf16Matrix x{args.x.as<uint16_t>(), num_rows, num_inputs}, w{weight.data(), num_outputs, num_inputs};
  const dim3 grid(NumTiles(num_outputs, kTileOutputs), NumTiles(num_rows, kSide * kRowsPerThread));
  FT_CUDA_CHECK(
      Launch(MatMulTile<kRowsPerThread>, {.grid = grid, .block = dim3(kThreads), .stream = stream}, args, x, w));
}

}  // namespace

void MatMul(const MatMulArgs& args, cudaStream_t stream) {
  const CudaWeight& weight = AsCudaWeight(args.weight);
  const int64_t num_rows = args.x.shape[0];
  FT_CHECK(args.x.dtype == DType::kBF16 && args.x.shape[1] == weight.in_features());
  FT_CHECK(args.out.dtype == DType::kF32 && args.out.shape == Shape(num_rows, weight.out_features()));
  if (num_rows <= kSide) {
    LaunchTiles<1>(args, stream);
  } else {
    LaunchTiles<4>(args, stream);
  }
}

}  // namespace foretoken::kernels::cuda
