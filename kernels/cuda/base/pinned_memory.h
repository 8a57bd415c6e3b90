// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory, which a stream's copies may read and write while the host goes on. Take hands out bytes one
// after another, and Reset takes all of them back when the stream has done its work. The memory itself is kept for the
// next step.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/backend.h"

namespace foretoken::kernels::cuda {

class PinnedMemory {
 public:
  // Aligned for any type; not zeroed. Valid until Reset.
  void* Take(size_t num_bytes);
  void Reset();

 private:
  struct Chunk {
    Buffer bytes;
    size_t size = 0;
  };

  std::vector<Chunk> chunks_;
  size_t current_ = 0;  // the chunks before it are full
  size_t used_ = 0;     // bytes of the current chunk
};

}  // namespace foretoken::kernels::cuda
