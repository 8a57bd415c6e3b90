// SPDX-License-Identifier: Apache-2.0
// One block per row. To fill a row, a thread makes four columns at a time from one Philox block.
// Bytes moved: the written or compared elements, once. It runs when a service starts.
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/matmul/trial_data.h"
#include "kernels/dtype.h"
#include "kernels/philox.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 256;

enum class Magnitudes { kOne, kByRow };

// A nearly normal number: the sum of a word's bytes, whose variance is 4 (2^16 - 1) / 12.
__device__ float NormalOf(uint32_t word) {
  const auto sum = static_cast<int>((word & 255u) + (word >> 8 & 255u) + (word >> 16 & 255u) + (word >> 24));
  return static_cast<float>(sum - 510) * 0x1p-7f;
}

__device__ float MagnitudeOf(int64_t row, uint32_t word) {
  if (row % 16 == 15) return 0x1p-131f;
  return row % 2 == 1 ? static_cast<float>(1u << (word % 8u)) : 1.0f;
}

__device__ void Put(float value, float& to) { to = value; }
__device__ void Put(float value, uint16_t& to) { to = Bf16FromFloat(value); }

template <typename T, Magnitudes kMagnitudes>
__global__ void __launch_bounds__(kThreads) FillRow(MatrixRows<T> to, int64_t first_row, uint32_t seed) {
  const int64_t row = first_row + blockIdx.x;
  T* const elements = to.data + blockIdx.x * to.stride;
  for (int64_t first = int64_t{threadIdx.x} * 4; first < to.num_columns; first += kThreads * 4) {
    const PhiloxBlock words = Philox4x32(seed, {static_cast<uint32_t>(first / 4), static_cast<uint32_t>(row), 0u, 0u});
    for (int i = 0; i < 4 && first + i < to.num_columns; ++i) {
      const float magnitude = kMagnitudes == Magnitudes::kByRow ? MagnitudeOf(row, words[(i + 1) % 4]) : 1.0f;
      Put(NormalOf(words[i]) * magnitude, elements[first + i]);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    CompareRow(MatrixRows<const float> a, MatrixRows<const float> b, uint32_t* differs) {
  const auto* a_words = reinterpret_cast<const uint32_t*>(a.data + blockIdx.x * a.stride);
  const auto* b_words = reinterpret_cast<const uint32_t*>(b.data + blockIdx.x * b.stride);
  for (int64_t i = threadIdx.x; i < a.num_columns; i += kThreads) {
    if (a_words[i] != b_words[i]) *differs = 1;
  }
}

template <typename T>
LaunchShape BlockPerRow(const MatrixRows<T>& matrix, cudaStream_t stream) {
  return {.grid = dim3(static_cast<unsigned>(matrix.num_rows)), .block = dim3(kThreads), .stream = stream};
}

}  // namespace

void FillNormal(const MatrixRows<uint16_t>& to, uint32_t seed, cudaStream_t stream) {
  FT_CUDA_CHECK(Launch(FillRow<uint16_t, Magnitudes::kOne>, BlockPerRow(to, stream), to, 0, seed));
}

void FillNormal(const MatrixRows<float>& to, int64_t first_row, uint32_t seed, cudaStream_t stream) {
  FT_CUDA_CHECK(Launch(FillRow<float, Magnitudes::kOne>, BlockPerRow(to, stream), to, first_row, seed));
}

void FillInputs(const MatrixRows<uint16_t>& to, uint32_t seed, cudaStream_t stream) {
  FT_CUDA_CHECK(Launch(FillRow<uint16_t, Magnitudes::kByRow>, BlockPerRow(to, stream), to, 0, seed));
}

void CompareBits(const MatrixRows<const float>& a, const MatrixRows<const float>& b, uint32_t* differs,
                 cudaStream_t stream) {
  FT_CUDA_CHECK(Launch(CompareRow, BlockPerRow(a, stream), a, b, differs));
}

}  // namespace foretoken::kernels::cuda
