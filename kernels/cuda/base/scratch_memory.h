// SPDX-License-Identifier: Apache-2.0
// A device's memory for the intermediate results of ops, which run one after another. Pieces are taken from the front,
// and all of it is free again when no piece is in use: an op takes its pieces and returns them before the next op.
//
// Memory that the stream allocates and frees costs the host two calls for each piece, and a recorded pass more.
//
// Threads: one caller at a time, as of the device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/backend.h"
#include "kernels/check.h"

namespace foretoken::kernels::cuda {

class ScratchMemory {
 public:
  ScratchMemory(Buffer memory, size_t num_bytes) : memory_(std::move(memory)), num_bytes_(num_bytes) {}

  // Aligned to 256 bytes, as CUDA's own memory is. Null if too little is free.
  void* Take(size_t num_bytes) {
    constexpr size_t kAlignment = 256;
    if (num_bytes > num_bytes_ - num_used_) return nullptr;
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
  Buffer memory_;
  size_t num_bytes_;
  size_t num_used_ = 0;
  int num_pieces_ = 0;
};

// Of the calling thread's current device, or null if that keeps none. Device::MakeCurrent sets it.
inline thread_local ScratchMemory* current_scratch = nullptr;

}  // namespace foretoken::kernels::cuda
