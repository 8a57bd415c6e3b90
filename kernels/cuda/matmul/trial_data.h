// SPDX-License-Identifier: Apache-2.0
// Data for the trials that compare the bits of two ways to a product: random matrices, made on the GPU, and a
// comparison. An element is a function of its row, its column and the seed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace foretoken::kernels::cuda {

// Rows begin `stride` elements apart.
template <typename T>
struct MatrixRows {
  T* data = nullptr;
  int64_t num_rows = 0;
  int64_t num_columns = 0;
  int64_t stride = 0;
};

// Nearly normal numbers, of mean 0 and deviation 1.16, in steps of 2^-7 or, above 2, in bf16's steps. Sums of their
// products cancel, so roundings stay visible.
void FillNormal(const MatrixRows<uint16_t>& to, uint32_t seed, cudaStream_t stream);
// `first_row` is the number of the first row within the random matrix.
void FillNormal(const MatrixRows<float>& to, int64_t first_row, uint32_t seed, cudaStream_t stream);

// The same for the inputs of products, with two exceptions in every 16 rows. Seven rows have elements of eight
// magnitudes, so that sums also lose small parts. One row is so small that its sums are below the range in which f32
// has all its digits.
void FillInputs(const MatrixRows<uint16_t>& to, uint32_t seed, cudaStream_t stream);

// Sets *differs to 1 if any element of `a` and `b` differs in its bits.
void CompareBits(const MatrixRows<const float>& a, const MatrixRows<const float>& b, uint32_t* differs,
                 cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
