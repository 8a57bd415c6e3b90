// SPDX-License-Identifier: Apache-2.0
// An array that grows at its end and never moves an element. It is a list of parts, and each part is twice as long as
// the part before it. So growing needs no copy, no pause and no second block of memory, and a shift resolves an index.
//
// Parts of 2 MiB and more ask the system for huge pages, since the tree reads the array at random. Memory that was
// never written is not resident.
//
// Threads: as std::vector.
#pragma once

#include <sys/mman.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>

#include "kernels/check.h"

namespace foretoken::proposer {

template <typename T>
class GrowingArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  uint32_t size() const { return size_; }

  T& operator[](uint32_t i) { return parts_[PartOf(i)].get()[i + kFirst - PartLength(PartOf(i))]; }
  const T& operator[](uint32_t i) const { return parts_[PartOf(i)].get()[i + kFirst - PartLength(PartOf(i))]; }

  // Adds `length` adjacent elements, at most kLongestRun, and returns the index of the first. Their values are
  // uninitialised.
  uint32_t AppendRun(uint32_t length) {
    const uint32_t part_end = PartLength(PartOf(size_) + 1) - kFirst;
    if (length > part_end - size_) size_ = part_end;
    FT_CHECK(size_ <= kMaxSize - length);
    const uint32_t part = PartOf(size_);
    if (parts_[part] == nullptr) parts_[part] = MakePart(PartLength(part));
    const uint32_t begin = size_;
    size_ += length;
    return begin;
  }

  static constexpr uint32_t kLongestRun = 1024;

 private:
  static constexpr uint32_t kFirst = kLongestRun;
  static constexpr uint32_t kMaxSize = 0xFFFFFFFF - kFirst;  // the parts hold one element more
  static constexpr int kNumParts = 22;
  static constexpr size_t kHugePageBytes = size_t{2} << 20;

  struct Free {
    void operator()(T* part) const { std::free(part); }
  };

  static uint32_t PartOf(uint32_t i) { return std::bit_width(i + kFirst) - std::bit_width(kFirst); }
  static uint32_t PartLength(uint32_t part) { return kFirst << part; }

  static std::unique_ptr<T, Free> MakePart(size_t length) {
    const size_t num_bytes = length * sizeof(T);
    const size_t alignment = num_bytes >= kHugePageBytes ? kHugePageBytes : 64;
    auto* part = static_cast<T*>(std::aligned_alloc(alignment, (num_bytes + alignment - 1) / alignment * alignment));
    FT_CHECK(part != nullptr);
    if (num_bytes >= kHugePageBytes) madvise(part, num_bytes, MADV_HUGEPAGE);  // a hint to the system
    return std::unique_ptr<T, Free>(part);
  }

  uint32_t size_ = 0;
  std::array<std::unique_ptr<T, Free>, kNumParts> parts_;
};

}  // namespace foretoken::proposer
