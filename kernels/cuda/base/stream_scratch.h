// SPDX-License-Identifier: Apache-2.0
// Device memory for the work enqueued on a stream between this object's construction and its destruction. It is
// allocated and freed in the stream's order, so no thread waits. Not zeroed.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/base/check.h"

namespace foretoken::kernels::cuda {

class StreamScratch {
 public:
  StreamScratch(size_t num_bytes, cudaStream_t stream) : stream_(stream) {
    FT_CUDA_CHECK(cudaMallocAsync(&data_, num_bytes, stream));
  }
  ~StreamScratch() { FT_CUDA_CHECK(cudaFreeAsync(data_, stream_)); }
  StreamScratch(const StreamScratch&) = delete;
  StreamScratch& operator=(const StreamScratch&) = delete;

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_;
};

}  // namespace foretoken::kernels::cuda
