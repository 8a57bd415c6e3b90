// SPDX-License-Identifier: Apache-2.0
// Host memory that a stream's copies may read and write while the host goes on: page-locked, so that no copy waits for
// the host. Bytes are handed out one after another and all taken back at once, when the stream has done its work; the
// memory itself is kept for the next time.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/backend.h"

namespace foretoken::kernels::cuda {

class PinnedMemory {
 public:
  // Aligned for any type; whatever was there before. Valid until Reset.
  void* Take(size_t num_bytes);
  void Reset();

 private:
  struct Chunk {
    Buffer bytes;
    size_t size = 0;
  };

  std::vector<Chunk> chunks_;
  size_t current_ = 0;  // chunks before it are full
  size_t used_ = 0;     // of the current one
};

}  // namespace foretoken::kernels::cuda
