// SPDX-License-Identifier: Apache-2.0
// What E1 costs a matrix product: ours beside that of cuBLASLt, whose sums may have any order. It measures; no request
// is served by the library, whose bits follow the row count.
//
//   const MeasuredProducts measured = MeasureProducts({.num_rows = 512, .num_outputs = 4096, .num_inputs = 4096},
//                                                     {.num_repetitions = 20}, device);
//
// The library is the machine's own, looked for when it is asked for, so nothing has to be there to build or to serve.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cuda/device.h"

namespace foretoken::kernels::cuda {

struct ProductShape {
  int64_t num_rows = 0;     // T
  int64_t num_outputs = 0;  // N
  int64_t num_inputs = 0;   // K, a multiple of 8
};

struct ProductTimes {
  double our_seconds = 0;       // of one product
  double library_seconds = 0;   // with the algorithm that the library itself ranks first
  bool bits_are_equal = false;  // of the two results, on random bf16 values
};

struct MeasuredProducts {
  std::optional<ProductTimes> times;
  std::string error;  // where there are none: what failed, and what the library or the loader said
};

struct MeasureOptions {
  int num_repetitions = 1;                    // enqueued before one wait, so that the GPU is measured and not the host
  std::string library = "libcublasLt.so.13";  // as dlopen takes it
};

MeasuredProducts MeasureProducts(const ProductShape& shape, const MeasureOptions& options, Device& device);

}  // namespace foretoken::kernels::cuda
