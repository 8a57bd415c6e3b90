// SPDX-License-Identifier: Apache-2.0
// Device memory for the work enqueued on a stream between this object's construction and its destruction. It is a piece
// of the current device's kept scratch memory, if that has room; else it is allocated and freed in the stream's order.
// So no thread waits. Not zeroed. The stream is the current device's.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/scratch_memory.h"

namespace foretoken::kernels::cuda {

class StreamScratch {
 public:
  StreamScratch(size_t num_bytes, cudaStream_t stream) : kept_(current_scratch), stream_(stream) {
    if (kept_ != nullptr) data_ = kept_->Take(num_bytes, stream);
    if (data_ != nullptr) return;
    kept_ = nullptr;
    FT_CUDA_CHECK(cudaMallocAsync(&data_, num_bytes, stream));
  }
  ~StreamScratch() {
    if (kept_ != nullptr) {
      kept_->Return();
    } else {
      FT_CUDA_CHECK(cudaFreeAsync(data_, stream_));
    }
  }
  StreamScratch(const StreamScratch&) = delete;
  StreamScratch& operator=(const StreamScratch&) = delete;

  void* data() const { return data_; }

 private:
  ScratchMemory* kept_;  // null if the memory is the stream's own
  void* data_ = nullptr;
  cudaStream_t stream_;
};

}  // namespace foretoken::kernels::cuda
