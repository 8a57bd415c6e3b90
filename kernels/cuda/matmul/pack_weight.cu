// SPDX-License-Identifier: Apache-2.0
// One block per row, with its threads side by side along the inputs. Writes are scattered, in pieces of an element's
// size.
// Bytes moved: the rows once (in e4m3 twice, the second time from a cache), the packed form once. It runs once per
// weight.
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/matmul/e4m3_row.cuh"
#include "kernels/cuda/matmul/pack_weight.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) PackBf16Row(const uint16_t* rows, int64_t first_output, PackedWeight to) {
  const int64_t output = first_output + blockIdx.x;
  const uint16_t* row = rows + blockIdx.x * to.num_inputs;
  for (int64_t k = threadIdx.x; k < to.num_inputs; k += kThreads) {
    *reinterpret_cast<uint16_t*>(to.data + to.OffsetOf(output, k)) = row[k];
  }
}

__global__ void __launch_bounds__(kThreads) PackE4m3Row(const uint16_t* rows, int64_t first_output, PackedWeight to) {
  const int64_t output = first_output + blockIdx.x;
  const uint16_t* row = rows + blockIdx.x * to.num_inputs;
  uint32_t largest = 0;
  for (int64_t k = threadIdx.x; k < to.num_inputs; k += kThreads) largest = Larger()(largest, MagnitudeOf(row[k]));
  const float scale = E4m3Scale<kThreads>(largest);
  if (threadIdx.x == 0) to.scales[output] = scale;
  for (int64_t k = threadIdx.x; k < to.num_inputs; k += kThreads) {
    to.data[to.OffsetOf(output, k)] = E4m3CodeOf(row[k], scale);
  }
}

// A thread writes the codes of two neighbouring inputs, which are a byte of int4.
__global__ void __launch_bounds__(kThreads) PackIntegerRow(IntegerRows rows, int64_t first_output, PackedWeight to) {
  const int64_t output = first_output + blockIdx.x;
  const uint8_t* codes = rows.codes + blockIdx.x * to.num_inputs;
  const bool is_int8 = to.format == WeightFormat::kInt8;
  for (int64_t k = 2 * static_cast<int64_t>(threadIdx.x); k < to.num_inputs; k += 2 * kThreads) {
    const bool has_second = k + 1 < to.num_inputs;
    uint8_t* pair = to.data + to.OffsetOf(output, k);
    if (is_int8) {
      pair[0] = codes[k];
      if (has_second) pair[1] = codes[k + 1];
    } else {
      pair[0] = static_cast<uint8_t>(codes[k] | (has_second ? codes[k + 1] << 4 : 0));
    }
  }
  const int64_t num_groups = (to.num_inputs + to.group_size - 1) / to.group_size;
  for (int64_t group = threadIdx.x; group < num_groups; group += kThreads) {
    const int64_t at = group * to.padded_outputs() + output;
    to.scales[at] = rows.scales[blockIdx.x * num_groups + group];
    if (to.has_offsets) to.offsets[at] = rows.offsets[blockIdx.x * num_groups + group];
  }
}

}  // namespace

void PackIntegers(const IntegerRows& rows, IndexRange outputs, const PackedWeight& weight, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(outputs.size()));
  FT_CUDA_CHECK(
      Launch(PackIntegerRow, {.grid = grid, .block = dim3(kThreads), .stream = stream}, rows, outputs.begin, weight));
}

void PackRows(const uint16_t* rows, IndexRange outputs, const PackedWeight& weight, cudaStream_t stream) {
  const auto kernel = weight.format == WeightFormat::kBf16 ? PackBf16Row : PackE4m3Row;
  const dim3 grid(static_cast<unsigned>(outputs.size()));
  FT_CUDA_CHECK(Launch(kernel, {.grid = grid, .block = dim3(kThreads), .stream = stream}, rows, outputs.begin, weight));
}

}  // namespace foretoken::kernels::cuda
