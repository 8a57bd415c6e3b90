// SPDX-License-Identifier: Apache-2.0
// Rows of activations in the form that FP8 products read: each row has its own e4m3 codes and its own scale
// (e4m3_row.cuh), so that no row depends on another (E1).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/base/stream_scratch.h"
#include "kernels/tensor_view.h"

namespace foretoken::kernels::cuda {

// The rows are in the stream's memory, for work enqueued while this lives.
class QuantizedRows {
 public:
  // [T, K] bf16, T > 0.
  QuantizedRows(const ConstTensorView& x, cudaStream_t stream);

  // [T, row_bytes]: K padded with zeros to whole slices (numeric_class.h), at a multiple of 16 bytes.
  const uint8_t* codes() const { return static_cast<const uint8_t*>(scratch_.data()); }
  int64_t row_bytes() const { return row_bytes_; }
  const float* scales() const { return scales_; }  // [T]

 private:
  int64_t row_bytes_;
  StreamScratch scratch_;
  float* scales_;
};

}  // namespace foretoken::kernels::cuda
