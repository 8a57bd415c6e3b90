// SPDX-License-Identifier: Apache-2.0
// A block per row, its threads side by side along the inputs; writes are scattered in pieces of an element's size.
// Bytes moved: the rows once (in e4m3 twice, the second time from a cache), the packed form once. It runs once per
// weight.
#include <cfloat>

#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack_weight.h"

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

// Of the whole row, for every thread. As integers a NaN's magnitude is the largest, then an infinity's.
__device__ float LargestMagnitude(const uint16_t* row, int64_t num_inputs) {
  __shared__ uint16_t largest[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  uint16_t own = 0;
  for (int64_t k = thread; k < num_inputs; k += kThreads) {
    const uint16_t magnitude = row[k] & 0x7fffu;
    if (magnitude > own) own = magnitude;
  }
  largest[thread] = own;
  __syncthreads();
  for (int width = kThreads / 2; width > 0; width /= 2) {
    if (thread < width && largest[thread + width] > largest[thread]) largest[thread] = largest[thread + width];
    __syncthreads();
  }
  return FloatFromBf16(largest[0]);
}

__global__ void __launch_bounds__(kThreads) PackE4m3Row(const uint16_t* rows, int64_t first_output, PackedWeight to) {
  const int64_t output = first_output + blockIdx.x;
  const uint16_t* row = rows + blockIdx.x * to.num_inputs;
  const float scale = LargestMagnitude(row, to.num_inputs) / kMaxE4m3;
  if (threadIdx.x == 0) to.scales[output] = scale;
  for (int64_t k = threadIdx.x; k < to.num_inputs; k += kThreads) {
    // Where the scale is not finite, so is whatever it multiplies.
    const float value = scale > 0 && scale <= FLT_MAX ? FloatFromBf16(row[k]) / scale : 0;
    to.data[to.OffsetOf(output, k)] = E4m3FromFloat(value);
  }
}

}  // namespace

void PackRows(const uint16_t* rows, IndexRange outputs, const PackedWeight& weight, cudaStream_t stream) {
  const auto kernel = weight.format == WeightFormat::kBf16 ? PackBf16Row : PackE4m3Row;
  const dim3 grid(static_cast<unsigned>(outputs.size()));
  FT_CUDA_CHECK(Launch(kernel, {.grid = grid, .block = dim3(kThreads), .stream = stream}, rows, outputs.begin, weight));
}

}  // namespace foretoken::kernels::cuda
