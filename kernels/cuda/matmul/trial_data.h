// SPDX-License-Identifier: Apache-2.0
// What it takes to try on a GPU whether two ways to a product give the same bits: random matrices, made where they are
// needed, and a comparison. An element is a function of its row, its column and the seed.
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

// About normal, of mean 0 and deviation 1.16, in steps of 2^-7 or, above 2, what bf16 has: sums of their products
// cancel, and keep rounding.
void FillNormal(const MatrixRows<uint16_t>& to, uint32_t seed, cudaStream_t stream);
// `first_row`: which row of the random matrix the first one is.
void FillNormal(const MatrixRows<float>& to, int64_t first_row, uint32_t seed, cudaStream_t stream);

// The same for the inputs of products, but that of every 16 rows seven have elements of eight magnitudes, so that
// sums also lose what is small, and one is so small that its sums are below what f32 holds with all digits.
void FillInputs(const MatrixRows<uint16_t>& to, uint32_t seed, cudaStream_t stream);

// Sets *differs to 1 where an element of one has not the bits of the other's.
void CompareBits(const MatrixRows<const float>& a, const MatrixRows<const float>& b, uint32_t* differs,
                 cudaStream_t stream);

}  // namespace foretoken::kernels::cuda
