// SPDX-License-Identifier: Apache-2.0
// The common part of the kernels of a matrix product: a block's tile of outputs by rows, and the one loop that computes
// its sums in the order of numeric_class.h. Kernels differ only in the tile's size and in the block that adds splits,
// so their bits are equal.
//
// The weight is the left side of each matrix step, so that its 16 outputs fill the instruction for any number of rows.
// The columns are 8 rows. A slice is 64 inputs of the weight's tiles and of the rows. It is copied asynchronously into
// one of `kStages` buffers while earlier slices are multiplied. A weight's chunks are copied and read in their own
// layout (weight_layout.h). A row's 128 bytes (bf16) or 64 (e4m3) are pieces of 16 bytes. Pieces are swapped from row
// to row, so that the same piece of eight rows, which one matrix load reads, lies in eight different groups of banks.
//
// Where four warps multiply together (MatrixUnit::kGroups), the matrix unit itself reads the rows from shared memory,
// in this very layout, while the block's threads copy a later slice.
//
// With an e4m3 weight the rows are e4m3 too (quantize_rows.h). Both are widened between shared memory and the matrix
// unit (mma_e4m3.cuh). Integers become the bf16 that they stand for there, and their rows are bf16.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/base/mma.cuh"
#include "kernels/cuda/base/ptx.cuh"
#include "kernels/cuda/matmul/matrix_unit.h"
#include "kernels/cuda/matmul/mma_e4m3.cuh"
#include "kernels/cuda/matmul/numeric_class.h"
#include "kernels/cuda/matmul/quantize_rows.h"
#include "kernels/cuda/matmul/weight_layout.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// The rows, in the weight's format.
struct ProductRows {
  const uint8_t* data = nullptr;  // [T, row_bytes]
  int64_t row_bytes = 0;
  bool is_aligned = false;        // every row begins and ends at a multiple of 16 bytes
  const float* scales = nullptr;  // [T] of e4m3
};

// A product in the form that kernels take.
struct Product {
  PackedWeight weight;
  NumericClass numeric_class;
  ProductRows rows;
  int64_t num_rows = 0;  // T
  const float* bias = nullptr;
  OutputMode mode = OutputMode::kStore;
  float* out = nullptr;  // [T, N]
};

ProductRows RowsOf(const ConstTensorView& x);  // [T, K] bf16
ProductRows RowsOf(const QuantizedRows& rows);

// Checks the arguments and makes a product of them; for an e4m3 weight, with its quantised rows.
Product ProductOf(const MatMulArgs& args);
Product ProductOf(const MatMulArgs& args, const QuantizedRows& rows);

// A block's tile: warps side by side along outputs and rows. Each warp has fragments of 16 outputs and of 8 rows.
template <WeightFormat kFormat_, int kOutputWarps_, int kRowWarps, int kOutputFragments_, int kRowFragments_,
          int kStages_, MatrixUnit kUnit_ = MatrixUnit::kWarps>
struct TileShape {
  static constexpr WeightFormat kFormat = kFormat_;
  static constexpr int kOutputWarps = kOutputWarps_;
  static constexpr int kOutputFragments = kOutputFragments_;
  static constexpr int kRowFragments = kRowFragments_;
  static constexpr int kStages = kStages_;
  static constexpr MatrixUnit kUnit = kUnit_;

  static constexpr int kThreads = kOutputWarps * kRowWarps * kWarpThreads;
  static constexpr int kRows = kRowWarps * kRowFragments * kMmaColumns;
  static_assert(kOutputWarps * kOutputFragments * kTileOutputs == kPanelOutputs);

  static constexpr int kWeightBytes = PanelSliceBytes(kFormat);
  static constexpr int kRowBytes = kSliceInputs * (kFormat == WeightFormat::kE4m3 ? 1 : 2);
  static constexpr int kStageBytes = kWeightBytes + kRows * kRowBytes;
  static constexpr size_t kSharedBytes = size_t{kStages} * kStageBytes;
};

// The tile of few rows: four warps, each for 32 of the outputs and all rows.
template <WeightFormat kFormat, int kRowFragments, MatrixUnit kUnit = MatrixUnit::kWarps>
using SkinnyShape = TileShape<kFormat, 4, 1, 2, kRowFragments, kFormat == WeightFormat::kBf16 ? 4 : 6, kUnit>;

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

  // sums[i][j] belongs to the warp's output fragment i and row fragment j.
  using Sums = FragmentC[Shape::kOutputFragments][Shape::kRowFragments];

  // Computes the sums of splits [begin, end), and calls take(split, sums) for each of them.
  template <typename Take>
  __device__ void MultiplySplits(int32_t begin, int32_t end, const Take& take) {
    const NumericClass order = product_.numeric_class;
    const int32_t last_slice = order.split_begin(end);
    int32_t slice = order.split_begin(begin), next_slice = slice;
    for (int stage = 0; stage + 1 < Shape::kStages; ++stage) CopySlice(next_slice++, last_slice, stage);
    int read_stage = 0, write_stage = Shape::kStages - 1;
    for (int32_t split = begin; split < end; ++split) {
      Sums sums{};
      // A division, and as slow as a slice's products: nvcc leaves it in the loop, whose asm may change memory.
      const int32_t split_end = order.split_begin(split + 1);
      for (; slice < split_end; ++slice) {
        ptx::WaitForCopies<Shape::kStages - 2>();
        if constexpr (Shape::kUnit == MatrixUnit::kGroups) ptx::ShareWithGroupMma();
        __syncthreads();  // now every thread sees the slice, and no thread reads the buffer that is overwritten next
        const uint8_t* stage = shared_ + read_stage * Shape::kStageBytes;
        if constexpr (Shape::kUnit == MatrixUnit::kGroups) {
          StartSlice(stage, slice, sums);
          CopySlice(next_slice++, last_slice, write_stage);
          ptx::EndGroupMma();
        } else {
          CopySlice(next_slice++, last_slice, write_stage);
          MultiplySlice(stage, slice, sums);
        }
        write_stage = read_stage;
        read_stage = read_stage + 1 == Shape::kStages ? 0 : read_stage + 1;
      }
      take(split, sums);
    }
  }

  // Writes the final sums over all splits. Present values of the output are read many at a time, because each takes as
  // long as memory does. In place of values beyond the output's end the last row or the first output is read once more:
  // a condition would put a branch between two reads.
  __device__ void Store(const Sums& sums) const {
    constexpr int kFragments = Shape::kOutputFragments;
    constexpr int kTogether = Shape::kRowFragments * kFragments < 8 ? Shape::kRowFragments : 8 / kFragments;
    static_assert(Shape::kRowFragments % kTogether == 0);
    float biases[kFragments][2] = {};
    if (product_.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 2 * kFragments; ++i) {
        const int64_t output = OutputOf(i / 2, i % 2);
        if (output < product_.weight.num_outputs) biases[i / 2][i % 2] = product_.bias[output];
      }
    }
#pragma unroll
    for (int first = 0; first < Shape::kRowFragments; first += kTogether) {
      float present[kTogether][kFragments][4];
      if (product_.mode == OutputMode::kAdd) {
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
#pragma unroll
          for (int at = 0; at < kFragments * 4; ++at) {
            const int64_t row = RowOf(first + j, at % 4), output = OutputOf(at / 4, at % 4 / 2);
            present[j][at / 4][at % 4] = *Out(row < product_.num_rows ? row : product_.num_rows - 1,
                                              output < product_.weight.num_outputs ? output : 0);
          }
        }
      }
      ForEachSum<kTogether>(first, [&](int j, int i, int element, int64_t row, int64_t output) {
        float sum = sums[i][first + j].sums[element];
        if constexpr (!kHasBf16Rows) sum = sum * product_.rows.scales[row] * product_.weight.scales[output];
        if (product_.bias != nullptr) sum += biases[i][element / 2];
        *Out(row, output) = product_.mode == OutputMode::kAdd ? present[j][i][element] + sum : sum;
      });
    }
  }

 private:
  static constexpr bool kHasBf16Rows = Shape::kFormat != WeightFormat::kE4m3;
  using StepWeights = std::conditional_t<kHasBf16Rows, FragmentA, F16FragmentA>;
  using StepRows = std::conditional_t<kHasBf16Rows, FragmentB, F16FragmentB>;
  static constexpr int kRowBytes = Shape::kRowBytes;
  static constexpr int kRowPieces = kRowBytes / kLaneBytes;
  static constexpr int kBankBytes = 128;  // all banks, once

  __device__ int lane() const { return thread_ % kWarpThreads; }
  __device__ int OutputFragment(int i) const {
    const int warp = thread_ / kWarpThreads % Shape::kOutputWarps;
    return Shape::kUnit == MatrixUnit::kGroups ? i * Shape::kOutputWarps + warp : warp * Shape::kOutputFragments + i;
  }
  __device__ int RowFragment(int j) const {
    return thread_ / kWarpThreads / Shape::kOutputWarps * Shape::kRowFragments + j;
  }

  // Starts a group of copies, an empty one beyond the last slice, so that a wait can count slices.
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

  // A thread copies the same piece of every kCopyRows-th row; these rows have the piece in the same place.
  __device__ void CopyRowSlice(int32_t slice, uint8_t* to) const {
    constexpr int kCopyRows = Shape::kThreads / kRowPieces;
    static_assert(kCopyRows % 8 == 0);
    const int first_row = thread_ / kRowPieces, piece = thread_ % kRowPieces;
    const int64_t offset = int64_t{slice} * kRowBytes + piece * kLaneBytes, row_bytes = product_.rows.row_bytes;
    to += PlaceOf(first_row, piece);
    if (kHasBf16Rows && !product_.rows.is_aligned) {
#pragma unroll 1
      for (int row = first_row; row < Shape::kRows; row += kCopyRows, to += kCopyRows * kRowBytes) {
        CopyElements(first_row_ + row, offset, to);
      }
      return;
    }
    const uint8_t* from = product_.rows.data + (first_row_ + first_row) * row_bytes + offset;
    const int64_t rows_left = offset < row_bytes ? product_.num_rows - first_row_ - first_row : 0;
#pragma unroll
    for (int row = 0; row < Shape::kRows; row += kCopyRows) {
      if (Shape::kRows % kCopyRows != 0 && first_row + row >= Shape::kRows) break;
      ptx::CopyAsync16(to + row * kRowBytes, from, row < rows_left ? kLaneBytes : 0);
      from += kCopyRows * row_bytes;
    }
  }

  // Copies a piece of a bf16 row element by element, with zeros beyond its end and beyond the last row.
  __device__ void CopyElements(int64_t row, int64_t offset, uint8_t* to) const {
    const uint8_t* from = product_.rows.data + row * product_.rows.row_bytes;
    for (int i = 0; i < kLaneBytes; i += static_cast<int>(sizeof(uint16_t))) {
      const bool is_inside = row < product_.num_rows && offset + i < product_.rows.row_bytes;
      *reinterpret_cast<uint16_t*>(to + i) =
          is_inside ? *reinterpret_cast<const uint16_t*>(from + offset + i) : uint16_t{0};
    }
  }

  // The place of a row's piece within the rows of a stage.
  static __device__ int PlaceOf(int row, int piece) {
    return row * kRowBytes + (piece ^ (row * kRowBytes / kBankBytes % kRowPieces)) * kLaneBytes;
  }

  // Multiplies two steps, 32 inputs, at a time.
  __device__ void MultiplySlice(const uint8_t* stage, int32_t slice, Sums& sums) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      StepWeights weights[Shape::kOutputFragments][2];  // [step]
#pragma unroll
      for (int i = 0; i < Shape::kOutputFragments; ++i) LoadWeights(stage, i, slice, half, weights[i]);
#pragma unroll
      for (int j = 0; j < Shape::kRowFragments; ++j) {
        StepRows rows[2];  // [step]
        LoadRows(stage, j, half, rows);
#pragma unroll
        for (int step = 0; step < 2; ++step) {
#pragma unroll
          for (int i = 0; i < Shape::kOutputFragments; ++i) MultiplyAdd(sums[i][j], weights[i][step], rows[step]);
        }
      }
    }
  }

  // Starts the slice's products, all four steps of them.
  __device__ void StartSlice(const uint8_t* stage, int32_t slice, Sums& sums) const {
    StepWeights weights[Shape::kOutputFragments][2][2];  // [half][step]
#pragma unroll
    for (int i = 0; i < Shape::kOutputFragments; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) LoadWeights(stage, i, slice, half, weights[i][half]);
    }
    ptx::BeginGroupMma();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int i = 0; i < Shape::kOutputFragments; ++i) {
        const uint32_t(&a)[4] = weights[i][step / 2][step % 2].pairs;
        AddColumns<0>(sums[i], a, stage + Shape::kWeightBytes, step);
      }
    }
    ptx::CommitGroupMma();
  }

  // Adds a step's products to the row fragments from kFirst on.
  template <int kFirst>
  __device__ static void AddColumns(FragmentC (&sums)[Shape::kRowFragments], const uint32_t (&a)[4],
                                    const uint8_t* rows, int step) {
    constexpr int kFragments = Shape::kRowFragments - kFirst >= 16 ? 16 : 8;
    ptx::GroupMma<kFragments>(&sums[kFirst].sums, a, rows + kFirst * kMmaColumns * kRowBytes, step);
    if constexpr (kFirst + kFragments < Shape::kRowFragments) AddColumns<kFirst + kFragments>(sums, a, rows, step);
  }

  // Loads the warp's output fragment i.
  __device__ void LoadWeights(const uint8_t* stage, int i, int32_t slice, int half, StepWeights (&steps)[2]) const {
    const uint8_t* tile = stage + OutputFragment(i) * TileSliceBytes(Shape::kFormat);
    const auto* chunks = reinterpret_cast<const uint4*>(tile) + lane();
    if constexpr (IsInteger(Shape::kFormat)) {
#pragma unroll
      for (int step = 0; step < 2; ++step) WidenIntegers(tile, i, slice * 4 + 2 * half + step, steps[step]);
    } else if constexpr (Shape::kFormat == WeightFormat::kBf16) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint4 pairs = chunks[(2 * half + step) * kWarpThreads];
        steps[step] = {{pairs.x, pairs.y, pairs.z, pairs.w}};
      }
    } else {
      const uint4 quads = chunks[half * kWarpThreads];
      WidenE4m3(CodesA{{quads.x, quads.y, quads.z, quads.w}}, steps);
    }
  }

  // Widens the codes of a step, the weight's `step`-th of 16 inputs, of the warp's output fragment i.
  __device__ void WidenIntegers(const uint8_t* tile, int i, int32_t step, FragmentA& widened) const {
    static_assert(kMmaDepth == kLeastGroupSize);
    constexpr bool kIsInt8 = Shape::kFormat == WeightFormat::kInt8;
    const int in_slice = step % 4;
    const uint8_t* codes =
        tile + lane() * kLaneBytes + (kIsInt8 ? in_slice / 2 * kChunkBytes + in_slice % 2 * 8 : in_slice * 4);
    const int64_t group = step * kMmaDepth / static_cast<int32_t>(product_.weight.group_size);
    const int64_t output = first_output_ + OutputFragment(i) * kTileOutputs + lane() / 4;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const int64_t row = output + pair % 2 * 8;
      const int first = kIsInt8 ? codes[2 * pair] : codes[pair] & 0xf;
      const int second = kIsInt8 ? codes[2 * pair + 1] : codes[pair] >> 4;
      widened.pairs[pair] =
          ptx::Bf16Pair(product_.weight.Value(row, group, first), product_.weight.Value(row, group, second));
    }
  }

  // Loads the warp's row fragment j. Matrix m of the four is piece m of the half (bf16) or slice (e4m3), for eight
  // rows.
  __device__ void LoadRows(const uint8_t* stage, int j, int half, StepRows (&steps)[2]) const {
    const int piece = (kHasBf16Rows ? half * 4 : 0) + lane() / 8;
    uint32_t matrices[4];
    ptx::LoadMatrices(
        matrices, stage + Shape::kWeightBytes + RowFragment(j) * kMmaColumns * kRowBytes + PlaceOf(lane() % 8, piece));
    if constexpr (kHasBf16Rows) {
      steps[0] = {{matrices[0], matrices[1]}};
      steps[1] = {{matrices[2], matrices[3]}};
    } else {
      WidenE4m3(CodesB{{matrices[2 * half], matrices[2 * half + 1]}}, steps);
    }
  }

  // The row of an element that the thread has of row fragment j.
  __device__ int64_t RowOf(int j, int element) const {
    return first_row_ + RowFragment(j) * kMmaColumns + lane() % 4 * 2 + element % 2;
  }

  // The thread's output in the first or second half of output fragment i.
  __device__ int64_t OutputOf(int i, int half) const {
    return first_output_ + OutputFragment(i) * kTileOutputs + half * 8 + lane() / 4;
  }

  // Calls visit(j, i, element, row, output) for the elements that the output has of kCount row fragments, j from
  // `first` on, and of all output fragments i.
  template <int kCount, typename Visit>
  __device__ void ForEachSum(int first, const Visit& visit) const {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
#pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int64_t row = RowOf(first + j, element);
        if (row >= product_.num_rows) continue;
#pragma unroll
        for (int i = 0; i < Shape::kOutputFragments; ++i) {
          const int64_t output = OutputOf(i, element / 2);
          if (output < product_.weight.num_outputs) visit(j, i, element, row, output);
        }
      }
    }
  }

  __device__ float* Out(int64_t row, int64_t output) const {
    return product_.out + row * product_.weight.num_outputs + output;
  }

  const Product& product_;
  uint8_t* shared_;
  const uint8_t* panel_;
  int64_t first_output_;
  int64_t first_row_;
  int thread_;
};

}  // namespace foretoken::kernels::cuda
