// SPDX-License-Identifier: Apache-2.0
// What the kernels of a matrix product have in common: a block's tile of outputs by rows, and the one loop that makes
// its sums in the order of numeric_class.h. Kernels differ in the tile's size and in who adds splits, so their bits
// cannot.
//
// The weight is the left side of each matrix step, so that its 16 outputs fill the instruction whatever the rows; 8
// rows are its columns. A slice, 64 inputs of the weight's tiles and of the rows, is copied asynchronously into one of
// `kStages` buffers while earlier ones are multiplied. A weight's chunks come and are read as they lie
// (weight_layout.h). A row's 128 bytes lie in pieces of 16, piece p of row r at p ^ (r % 8), so that eight rows' same
// piece, which one matrix load reads, lies in eight different groups of banks.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/numeric_class.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/weight_layout.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// A product as kernels get it.
struct Product {
  PackedWeight weight;
  NumericClass numeric_class;
  const uint16_t* x = nullptr;  // [T, K] bf16
  bool x_is_aligned = false;    // every row begins at a multiple of 16 bytes
  int64_t num_rows = 0;         // T
  const float* bias = nullptr;
  OutputMode mode = OutputMode::kStore;
  float* out = nullptr;  // [T, N]
};

// Of a product's arguments, which it checks.
Product ProductOf(const MatMulArgs& args);

// A block's tile: warps side by side along outputs and rows, and of each warp fragments of 16 outputs and of 8 rows.
template <WeightFormat kFormat_, int kOutputWarps_, int kRowWarps, int kOutputFragments_, int kRowFragments_,
          int kStages_>
struct TileShape {
  static constexpr WeightFormat kFormat = kFormat_;
  static constexpr int kOutputWarps = kOutputWarps_;
  static constexpr int kOutputFragments = kOutputFragments_;
  static constexpr int kRowFragments = kRowFragments_;
  static constexpr int kStages = kStages_;

  static constexpr int kThreads = kOutputWarps * kRowWarps * kWarpThreads;
  static constexpr int kRows = kRowWarps * kRowFragments * kMmaColumns;
  static_assert(kOutputWarps * kOutputFragments * kTileOutputs == kPanelOutputs);

  static constexpr int kWeightBytes = PanelSliceBytes(kFormat);
  static constexpr int kStageBytes = kWeightBytes + kRows * kSliceInputs * static_cast<int>(sizeof(uint16_t));
  static constexpr size_t kSharedBytes = size_t{kStages} * kStageBytes;
};

// Two pairs of codes as bf16, exactly: shifted into place a code reads as 2^-120 of its value.
__device__ inline void WidenE4m3(uint32_t codes, uint32_t& even_pair, uint32_t& odd_pair) {
  constexpr uint32_t kSigns = 0x80008000u, kMagnitudes = 0x07f007f0u, kTwoTo120 = 0x7b807b80u;
  even_pair = ptx::MultiplyBf16Pairs((codes << 8 & kSigns) | (codes << 4 & kMagnitudes), kTwoTo120);
  odd_pair = ptx::MultiplyBf16Pairs((codes & kSigns) | (codes >> 4 & kMagnitudes), kTwoTo120);
}

// A thread's part of a tile.
template <typename Shape>
class ProductTile {
 public:
  __device__ ProductTile(const Product& product, int64_t panel, int64_t first_row)
      : product_(product),
        shared_(static_cast<uint8_t*>(ptx::DynamicSharedMemory())),
        panel_(product.weight.panel(panel)),
        first_output_(panel * kPanelOutputs),
        first_row_(first_row),
        thread_(static_cast<int>(threadIdx.x)) {}

  // sums[i][j]: of the warp's output fragment i and row fragment j.
  using Sums = FragmentC[Shape::kOutputFragments][Shape::kRowFragments];

  // Makes the sums of splits [begin, end), and calls take(split, sums) for each when they are made.
  template <typename Take>
  __device__ void MultiplySplits(int32_t begin, int32_t end, const Take& take) {
    const NumericClass& order = product_.numeric_class;
    const int32_t last_slice = order.split_begin(end);
    int32_t slice = order.split_begin(begin), next_slice = slice;
    for (int stage = 0; stage + 1 < Shape::kStages; ++stage) CopySlice(next_slice++, last_slice, stage);
    int read_stage = 0, write_stage = Shape::kStages - 1;
    for (int32_t split = begin; split < end; ++split) {
      Sums sums{};
      for (; slice < order.split_begin(split + 1); ++slice) {
        ptx::WaitForCopies<Shape::kStages - 2>();
        __syncthreads();  // the slice is there for all, and all have read what is overwritten next
        CopySlice(next_slice++, last_slice, write_stage);
        MultiplySlice(shared_ + read_stage * Shape::kStageBytes, sums);
        write_stage = read_stage;
        read_stage = read_stage + 1 == Shape::kStages ? 0 : read_stage + 1;
      }
      take(split, sums);
    }
  }

  // Writes what the sums of all splits come to.
  __device__ void Store(const Sums& sums) const {
    const int64_t output = first_output_ + OutputFragment(0) * kTileOutputs + lane() / 4;
#pragma unroll
    for (int j = 0; j < Shape::kRowFragments; ++j) {
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const int64_t row = first_row_ + RowFragment(j) * kMmaColumns + lane() % 4 * 2 + column;
        if (row >= product_.num_rows) continue;
#pragma unroll
        for (int i = 0; i < 2 * Shape::kOutputFragments; ++i) {
          StoreSum(row, output + i * 8, sums[i / 2][j].sums[i % 2 * 2 + column]);
        }
      }
    }
  }

 private:
  static constexpr int kPieceInputs = 8;                          // 16 bytes of a row
  static constexpr int kRowPieces = kSliceInputs / kPieceInputs;  // 8
  static constexpr int kRowBytes = kSliceInputs * sizeof(uint16_t);

  __device__ int lane() const { return thread_ % kWarpThreads; }
  __device__ int OutputFragment(int i) const {
    return thread_ / kWarpThreads % Shape::kOutputWarps * Shape::kOutputFragments + i;
  }
  __device__ int RowFragment(int j) const {
    return thread_ / kWarpThreads / Shape::kOutputWarps * Shape::kRowFragments + j;
  }

  // A group of copies, an empty one beyond the last slice, so that a wait counts slices.
  __device__ void CopySlice(int32_t slice, int32_t last_slice, int stage) const {
    if (slice < last_slice) {
      CopyWeightSlice(slice, shared_ + stage * Shape::kStageBytes);
      CopyRowSlice(slice, shared_ + stage * Shape::kStageBytes + Shape::kWeightBytes);
    }
    ptx::CommitCopies();
  }

  __device__ void CopyWeightSlice(int32_t slice, uint8_t* to) const {
    constexpr int kCopyBytes = Shape::kThreads * kLaneBytes;
    static_assert(Shape::kWeightBytes % kCopyBytes == 0);
    const uint8_t* from = panel_ + int64_t{slice} * Shape::kWeightBytes + thread_ * kLaneBytes;
#pragma unroll
    for (int i = 0; i < Shape::kWeightBytes; i += kCopyBytes) {
      ptx::CopyAsync16(to + thread_ * kLaneBytes + i, from + i, kLaneBytes);
    }
  }

  // A thread copies the same piece of every so many rows, which all have it in the same place.
  __device__ void CopyRowSlice(int32_t slice, uint8_t* to) const {
    constexpr int kCopyRows = Shape::kThreads / kRowPieces;
    static_assert(kCopyRows % 8 == 0);
    const int first_row = thread_ / kRowPieces, piece = thread_ % kRowPieces;
    const int64_t input = int64_t{slice} * kSliceInputs + piece * kPieceInputs;
    to += PlaceOf(first_row, piece);
    if (!product_.x_is_aligned) {
#pragma unroll 1
      for (int row = first_row; row < Shape::kRows; row += kCopyRows, to += kCopyRows * kRowBytes) {
        CopyElements(first_row_ + row, input, to);
      }
      return;
    }
    const int64_t num_inputs = product_.weight.num_inputs;
    const uint16_t* from = product_.x + (first_row_ + first_row) * num_inputs + input;
#pragma unroll
    for (int row = 0; row < Shape::kRows; row += kCopyRows) {
      if (first_row + row >= Shape::kRows) break;
      const bool is_inside = first_row_ + first_row + row < product_.num_rows && input < num_inputs;
      ptx::CopyAsync16(to + row * kRowBytes, is_inside ? from + row * num_inputs : product_.x,
                       is_inside ? kLaneBytes : 0);
    }
  }

  // A piece of a row, element by element; zeros beyond its end and beyond the last row.
  __device__ void CopyElements(int64_t row, int64_t input, uint8_t* to) const {
    const int64_t num_inputs = product_.weight.num_inputs;
    for (int k = 0; k < kPieceInputs; ++k) {
      const bool is_inside = row < product_.num_rows && input + k < num_inputs;
      reinterpret_cast<uint16_t*>(to)[k] = is_inside ? product_.x[row * num_inputs + input + k] : uint16_t{0};
    }
  }

  // Of a row's piece within the rows of a stage.
  static __device__ int PlaceOf(int row, int piece) { return row * kRowBytes + (piece ^ (row % 8)) * kLaneBytes; }

  // Two steps, 32 inputs, at a time.
  __device__ void MultiplySlice(const uint8_t* stage, Sums& sums) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      FragmentA weights[2][Shape::kOutputFragments];  // [step]
#pragma unroll
      for (int i = 0; i < Shape::kOutputFragments; ++i) {
        LoadWeights(stage + OutputFragment(i) * TileSliceBytes(Shape::kFormat), half, weights[0][i], weights[1][i]);
      }
#pragma unroll
      for (int j = 0; j < Shape::kRowFragments; ++j) {
        // Matrix m of the four: inputs [8 m, 8 m + 8) of the half.
        uint32_t matrices[4];
        ptx::LoadMatrices(matrices, stage + Shape::kWeightBytes + RowFragment(j) * kMmaColumns * kRowBytes +
                                        PlaceOf(lane() % 8, half * 4 + lane() / 8));
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          const FragmentB rows = {{matrices[2 * step], matrices[2 * step + 1]}};
#pragma unroll
          for (int i = 0; i < Shape::kOutputFragments; ++i) MultiplyAdd(sums[i][j], weights[step][i], rows);
        }
      }
    }
  }

  // Of a tile's slice, the two steps of a half.
  __device__ void LoadWeights(const uint8_t* slice, int half, FragmentA& first, FragmentA& second) const {
    const auto* chunks = reinterpret_cast<const uint4*>(slice) + lane();
    if constexpr (Shape::kFormat == WeightFormat::kBf16) {
      const uint4 a = chunks[2 * half * kWarpThreads], b = chunks[(2 * half + 1) * kWarpThreads];
      first = {{a.x, a.y, a.z, a.w}};
      second = {{b.x, b.y, b.z, b.w}};
    } else {
      const uint4 codes = chunks[half * kWarpThreads];
      WidenE4m3(codes.x, first.pairs[0], first.pairs[1]);
      WidenE4m3(codes.y, first.pairs[2], first.pairs[3]);
      WidenE4m3(codes.z, second.pairs[0], second.pairs[1]);
      WidenE4m3(codes.w, second.pairs[2], second.pairs[3]);
    }
  }

  __device__ void StoreSum(int64_t row, int64_t output, float sum) const {
    const int64_t num_outputs = product_.weight.num_outputs;
    if (output >= num_outputs) return;
    if constexpr (Shape::kFormat == WeightFormat::kE4m3) sum *= product_.weight.scales[output];
    if (product_.bias != nullptr) sum += product_.bias[output];
    float* out = product_.out + row * num_outputs + output;
    *out = product_.mode == OutputMode::kAdd ? *out + sum : sum;
  }

  const Product& product_;
  uint8_t* shared_;
  const uint8_t* panel_;
  int64_t first_output_;
  int64_t first_row_;
  int thread_;
};

}  // namespace foretoken::kernels::cuda
