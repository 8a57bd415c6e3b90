// SPDX-License-Identifier: Apache-2.0
// Whether a product by cuBLASLt is ours, bit for bit: both are computed for random rows, all of them, and a random
// weight of one split, once to be stored and once to be added to random numbers. What is tried is what would serve: the
// same algorithm at the same row count, the weight's rows where they would be unpacked, the output's rows as far apart.
// Only numbers differ, on which no kernel's order of sums depends.
#pragma once

#include <cstdint>

#include "kernels/cuda/base/device.h"
#include "kernels/cuda/matmul/library_matmul.h"
#include "kernels/cuda/matmul/weight.h"

namespace foretoken::kernels::cuda {

// What a trial overwrites, large enough for the products that are tried.
struct TrialMemory {
  uint16_t* x = nullptr;
  uint16_t* weight_rows = nullptr;
  float* out = nullptr;
};

class LibraryCheck {
 public:
  // Of products with so many outputs and inputs.
  LibraryCheck(int64_t num_outputs, int64_t num_inputs, Device& device);

  int64_t num_outputs() const { return weight_.out_features(); }

  // Waits for the answer. A product that the library does not take is not ours.
  bool HasOurBits(const LibraryMatMul& matmul, const cublaslt::Algorithm& algorithm, const TrialMemory& memory);

 private:
  void CompareWithOurs(const uint16_t* x, const LibraryShape& shape, const float* out, OutputMode mode);

  Device& device_;
  CudaWeight weight_;
  Buffer ours_;     // some rows of out
  Buffer differs_;  // uint32
};

}  // namespace foretoken::kernels::cuda
