// SPDX-License-Identifier: Apache-2.0
// The memory that the process holds in large pieces, for tests of what a peer can leave behind. Small pieces would say
// little, because the allocator keeps them for later.
//
//   if (!CountLargePieces()) GTEST_SKIP() << kNoLargePieces;
//   const size_t before = LargePieceBytes();
#pragma once

#include <malloc.h>

#include <cstddef>
#include <cstdlib>

namespace foretoken::proposer {

inline constexpr const char* kNoLargePieces = "the allocator does not tell its large pieces";

// The bytes of the pieces of 128 KiB and more, in all threads.
inline size_t LargePieceBytes() { return mallinfo2().hblkhd; }

// Fixes the size from which pieces are large, because the allocator would raise it. Returns false if the allocator
// counts no large pieces. The sanitizers' allocators count none.
inline bool CountLargePieces() {
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  constexpr size_t kProbeBytes = size_t{8} << 20;
  const size_t before = LargePieceBytes();
  void* volatile probe = std::malloc(kProbeBytes);  // volatile, so that no compiler leaves it out
  const bool is_counted = LargePieceBytes() >= before + kProbeBytes;
  std::free(probe);
  return is_counted;
}

}  // namespace foretoken::proposer
