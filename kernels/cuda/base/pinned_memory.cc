// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/base/pinned_memory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <utility>

#include "kernels/cuda/base/check.h"

namespace foretoken::kernels::cuda {

void* PinnedMemory::Take(size_t num_bytes) {
  constexpr size_t kAlignment = 256, kSmallestChunk = size_t{4} << 20;
  num_bytes = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (current_ < chunks_.size() && used_ + num_bytes > chunks_[current_].size) {
    ++current_;
    used_ = 0;
  }
  if (current_ == chunks_.size()) {
    // Each chunk is at least twice the one before: takes that grow from step to step need few chunks.
    const size_t size = std::max(num_bytes, chunks_.empty() ? kSmallestChunk : 2 * chunks_.back().size);
    void* bytes = nullptr;
    FT_CUDA_CHECK(cudaMallocHost(&bytes, size));
    chunks_.push_back({Buffer(bytes, [](void* memory) { FT_CUDA_CHECK(cudaFreeHost(memory)); }), size});
  }
  void* taken = static_cast<std::byte*>(chunks_[current_].bytes.get()) + used_;
  used_ += num_bytes;
  return taken;
}

void PinnedMemory::Reset() { current_ = used_ = 0; }

}  // namespace foretoken::kernels::cuda
