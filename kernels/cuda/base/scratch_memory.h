// SPDX-License-Identifier: Apache-2.0
// A device's memory for the intermediate results of ops, which run one after another. Pieces are taken from the front,
// and all of it is free again when no piece is in use: an op takes its pieces and returns them before the next op.
//
// Memory that the stream allocates and frees costs the host two calls for each piece, and a recorded pass more.
//
// Threads: one caller at a time, as of the device.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "kernels/backend.h"
#include "kernels/check.h"

namespace foretoken::kernels::cuda {

class ScratchMemory {
 public:
  // The memory is allocated when the first piece is taken, for work on this stream.
  using Allocate = std::function<Buffer(size_t num_bytes)>;
  ScratchMemory(size_t num_bytes, cudaStream_t stream, Allocate allocate)
      : num_bytes_(num_bytes), stream_(stream), allocate_(std::move(allocate)) {}

  // Aligned to 256 bytes, as CUDA's own memory is. Null if too little is free. On another stream its work could write
  // to pieces that are in use.
  void* Take(size_t num_bytes, cudaStream_t stream) {
    FT_CHECK(stream == stream_);
    constexpr size_t kAlignment = 256;
    if (num_bytes > num_bytes_ - num_used_) return nullptr;
    if (memory_ == nullptr) memory_ = allocate_(num_bytes_);
    std::byte* const piece = static_cast<std::byte*>(memory_.get()) + num_used_;
    num_used_ = std::min(num_bytes_, (num_used_ + num_bytes + kAlignment - 1) / kAlignment * kAlignment);
    ++num_pieces_;
    return piece;
  }
  void Return() {
    FT_CHECK(num_pieces_ > 0);
    if (--num_pieces_ == 0) num_used_ = 0;
  }

 private:
  const size_t num_bytes_;
  const cudaStream_t stream_;
  const Allocate allocate_;
  Buffer memory_;
  size_t num_used_ = 0;
  int num_pieces_ = 0;
};

// Of the calling thread's current device, or null if that keeps none. Device::MakeCurrent sets it.
inline thread_local ScratchMemory* current_scratch = nullptr;

}  // namespace foretoken::kernels::cuda
