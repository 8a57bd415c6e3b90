// SPDX-License-Identifier: Apache-2.0
// One block per row. A thread takes 8 inputs at a time, neighbours side by side: 16 bytes in, 8 out.
// Bytes moved: the row twice in (the second time from a cache), half its size out.
#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/matmul/e4m3_row.cuh"
#include "kernels/cuda/matmul/numeric_class.h"
#include "kernels/cuda/matmul/quantize_rows.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPieceInputs = 8;
constexpr int64_t kPieceBytes = kPieceInputs * sizeof(uint16_t);

struct Quantization {
  const uint16_t* x = nullptr;  // [T, K] bf16
  bool x_is_aligned = false;    // every row begins and ends at a multiple of a piece's bytes
  int64_t num_inputs = 0;       // K
  uint8_t* codes = nullptr;     // [T, row_bytes]
  int64_t row_bytes = 0;
  float* scales = nullptr;  // [T]
};

struct Piece {
  uint16_t elements[kPieceInputs];
};

// Zeros beyond the row's end.
__device__ Piece LoadPiece(const Quantization& rows, int64_t row, int64_t input) {
  const uint16_t* from = rows.x + row * rows.num_inputs + input;
  Piece piece{};
  if (!rows.x_is_aligned) {
    for (int k = 0; k < kPieceInputs; ++k) piece.elements[k] = input + k < rows.num_inputs ? from[k] : uint16_t{0};
  } else if (input < rows.num_inputs) {
    const uint4 pairs = *reinterpret_cast<const uint4*>(from);
    const uint32_t words[] = {pairs.x, pairs.y, pairs.z, pairs.w};
#pragma unroll
    for (int k = 0; k < kPieceInputs; ++k) piece.elements[k] = static_cast<uint16_t>(words[k / 2] >> (k % 2 * 16));
  }
  return piece;
}

__global__ void __launch_bounds__(kThreads) QuantizeRow(Quantization rows) {
  const int64_t row = blockIdx.x, begin = int64_t{threadIdx.x} * kPieceInputs;
  constexpr int64_t kStride = int64_t{kThreads} * kPieceInputs;
  uint32_t largest = 0;
  for (int64_t input = begin; input < rows.num_inputs; input += kStride) {
    const Piece piece = LoadPiece(rows, row, input);
#pragma unroll
    for (int k = 0; k < kPieceInputs; ++k) largest = Larger()(largest, MagnitudeOf(piece.elements[k]));
  }
  const float scale = E4m3Scale<kThreads>(largest);
  if (threadIdx.x == 0) rows.scales[row] = scale;
  for (int64_t input = begin; input < rows.row_bytes; input += kStride) {
    const Piece piece = LoadPiece(rows, row, input);
    uint64_t codes = 0;
#pragma unroll
    for (int k = 0; k < kPieceInputs; ++k) codes |= uint64_t{E4m3CodeOf(piece.elements[k], scale)} << (k * 8);
    *reinterpret_cast<uint64_t*>(rows.codes + row * rows.row_bytes + input) = codes;
  }
}

int64_t PaddedInputs(int64_t num_inputs) { return (num_inputs + kSliceInputs - 1) / kSliceInputs * kSliceInputs; }

}  // namespace

QuantizedRows::QuantizedRows(const ConstTensorView& x, cudaStream_t stream)
    : row_bytes_(PaddedInputs(x.shape[1])),
      scratch_(x.shape[0] * (row_bytes_ + sizeof(float)), stream),
      scales_(reinterpret_cast<float*>(static_cast<uint8_t*>(scratch_.data()) + x.shape[0] * row_bytes_)) {
  FT_CHECK(x.dtype == DType::kBF16 && x.shape[0] > 0);
  const int64_t x_row_bytes = x.shape[1] * static_cast<int64_t>(sizeof(uint16_t));
  const Quantization rows{
      .x = x.as<uint16_t>(),
      .x_is_aligned = reinterpret_cast<uintptr_t>(x.data) % kPieceBytes == 0 && x_row_bytes % kPieceBytes == 0,
      .num_inputs = x.shape[1],
      .codes = static_cast<uint8_t*>(scratch_.data()),
      .row_bytes = row_bytes_,
      .scales = scales_};
  const dim3 grid(static_cast<unsigned>(x.shape[0]));
  FT_CUDA_CHECK(Launch(QuantizeRow, {.grid = grid, .block = dim3(kThreads), .stream = stream}, rows));
}

}  // namespace foretoken::kernels::cuda
