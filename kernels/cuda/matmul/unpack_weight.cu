// SPDX-License-Identifier: Apache-2.0
// One block per slice of a panel, 128 outputs by 64 inputs. Its 256 threads read the slice's 16 KiB in order, put each
// pair into its row in shared memory, and write rows of 128 bytes. A row there is 36 words long. So a warp's pairs, of
// 8 rows by 4 words, fall into 32 banks, and so do the 8 pieces of a row that a quarter of a warp reads.
//
// Bytes moved: the weight's once in each direction. If few MiB are unpacked at a time, their reader finds them in the
// second-level cache.
#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/matmul/unpack_weight.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowPieces = kSliceInputs * static_cast<int>(sizeof(uint16_t)) / kLaneBytes;  // 8
constexpr int kStoredRowPieces = kRowPieces + 1;
constexpr int kSlicePieces = PanelSliceBytes(WeightFormat::kBf16) / kLaneBytes;
static_assert(kSlicePieces == kPanelOutputs * kRowPieces && kSlicePieces % kThreads == 0);

// blockIdx: (slice, panel of the outputs).
__global__ void __launch_bounds__(kThreads) UnpackSlice(PackedWeight weight, IndexRange outputs, uint16_t* rows) {
  __shared__ uint4 stored[kPanelOutputs * kStoredRowPieces];
  auto* const words = reinterpret_cast<unsigned*>(stored);
  const auto word_at = [&](int row, int word) -> unsigned& { return words[row * kStoredRowPieces * 4 + word]; };
  const int thread = static_cast<int>(threadIdx.x);
  const auto* slice = reinterpret_cast<const uint4*>(weight.panel(outputs.begin / kPanelOutputs + blockIdx.y) +
                                                     int64_t{blockIdx.x} * PanelSliceBytes(WeightFormat::kBf16));
#pragma unroll
  for (int i = 0; i < kSlicePieces; i += kThreads) {
    // The lane's four pairs: see weight_layout.h.
    const int piece = i + thread, lane = piece % 32, chunk = piece / 32 % 4, tile = piece / 128;
    const int row = tile * kTileOutputs + lane / 4, word = chunk * 8 + lane % 4;
    const uint4 pairs = slice[piece];
    word_at(row, word) = pairs.x;
    word_at(row + 8, word) = pairs.y;
    word_at(row, word + 4) = pairs.z;
    word_at(row + 8, word + 4) = pairs.w;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSlicePieces; i += kThreads) {
    const int row = (i + thread) / kRowPieces, piece = (i + thread) % kRowPieces;
    const int64_t output = int64_t{blockIdx.y} * kPanelOutputs + row;
    if (output >= outputs.end - outputs.begin) continue;
    auto* const to = reinterpret_cast<uint4*>(rows + output * weight.num_inputs + int64_t{blockIdx.x} * kSliceInputs);
    to[piece] = stored[row * kStoredRowPieces + piece];
  }
}

}  // namespace

void UnpackRows(const PackedWeight& weight, IndexRange outputs, uint16_t* rows, cudaStream_t stream) {
  FT_CHECK(weight.format == WeightFormat::kBf16 && weight.num_inputs % kSliceInputs == 0);
  FT_CHECK(outputs.begin % kPanelOutputs == 0 && outputs.end <= weight.num_outputs);
  const dim3 grid(static_cast<unsigned>(weight.num_slices()),
                  static_cast<unsigned>((outputs.size() + kPanelOutputs - 1) / kPanelOutputs));
  FT_CUDA_CHECK(Launch(UnpackSlice, {.grid = grid, .block = dim3(kThreads), .stream = stream}, weight, outputs, rows));
}

}  // namespace foretoken::kernels::cuda
