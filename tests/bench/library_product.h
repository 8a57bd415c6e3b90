// SPDX-License-Identifier: Apache-2.0
// Measures the cost of E1 for a matrix product: the served product beside cuBLASLt's, whose sums may have any order.
//
//   MeasuredProduct product({.num_rows = 512, .num_outputs = 4096, .num_inputs = 4096}, {}, device);
//   if (product.error().empty()) times = product.Measure();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/base/device.h"
#include "kernels/cuda/matmul/library_matmul.h"
#include "kernels/cuda/matmul/library_serving.h"
#include "kernels/cuda/matmul/weight.h"

namespace foretoken::kernels::cuda {

struct ProductShape {
  int64_t num_rows = 0;     // T
  int64_t num_outputs = 0;  // N
  int64_t num_inputs = 0;   // K, a multiple of 8
};

struct ProductTimes {
  double served_seconds = 0;    // of one served product
  double library_seconds = 0;   // by the fastest of the algorithms that the library ranks first
  bool bits_are_equal = false;  // of the two results, on random bf16 values
  bool library_serves = false;  // whether cuBLASLt serves this product already (library_serving.h)
};

struct MeasureOptions {
  int num_repetitions = 1;  // enqueued before one wait, so the times are the GPU's and not the host's
  LibraryOptions library;
};

class MeasuredProduct {
 public:
  MeasuredProduct(const ProductShape& shape, const MeasureOptions& options, Device& device);

  // Why there is no measurement: the step that failed, and the library's or loader's error text.
  const std::string& error() const { return error_; }
  ProductTimes Measure();

 private:
  double SecondsOf(const std::function<void()>& enqueue) const;
  bool HasServedBits() const;

  ProductShape shape_;
  MeasureOptions options_;
  Device& device_;
  std::string error_;
  std::unique_ptr<Library> library_;
  Buffer x_, weight_rows_, served_out_, library_out_;
  std::unique_ptr<CudaWeight> weight_;
  std::unique_ptr<LibraryServing> serving_;
  std::unique_ptr<LibraryMatMul> matmul_;
  std::vector<cublaslt::Algorithm> algorithms_;
};

}  // namespace foretoken::kernels::cuda
