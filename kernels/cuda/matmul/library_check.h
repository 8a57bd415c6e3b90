// SPDX-License-Identifier: Apache-2.0
// Checks if a product by cuBLASLt has the same bits as ours. The check computes both for random rows and a random
// weight of one split, and compares all rows. It does so once with stored results and once with results added to random
// numbers. The trial has the conditions of service: the same algorithm at the same row count, the weight's rows in the
// memory where they would be unpacked, the output's rows as far apart. Only numbers differ, and no kernel's order of
// sums depends on numbers.
#pragma once

#include <cstdint>

#include "kernels/cuda/base/device.h"
#include "kernels/cuda/matmul/library_matmul.h"
#include "kernels/cuda/matmul/weight.h"

namespace foretoken::kernels::cuda {

// Memory that a trial overwrites, large enough for the products that are tried.
struct TrialMemory {
  uint16_t* x = nullptr;
  uint16_t* weight_rows = nullptr;
  float* out = nullptr;
};

class LibraryCheck {
 public:
  // For products with this many outputs and inputs.
  LibraryCheck(int64_t num_outputs, int64_t num_inputs, Device& device);

  int64_t num_outputs() const { return weight_.out_features(); }

  // Waits for the answer. False if the library refuses the product.
  bool HasOurBits(const LibraryMatMul& matmul, const cublaslt::Algorithm& algorithm, const TrialMemory& memory);

 private:
  void CompareWithOurs(const uint16_t* x, const LibraryShape& shape, const float* out, OutputMode mode);

  Device& device_;
  CudaWeight weight_;
  Buffer ours_;     // a few rows of out
  Buffer differs_;  // uint32
};

}  // namespace foretoken::kernels::cuda
