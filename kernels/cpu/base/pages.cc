// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/base/pages.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>

#include "kernels/check.h"

namespace foretoken::kernels::cpu {
namespace {

constexpr size_t kPageBytes = size_t{4} << 10;
constexpr size_t kHugePageBytes = size_t{2} << 20;

std::atomic<size_t> num_mapped_bytes = 0;

constexpr size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

void* TryToMap(size_t num_bytes) {
  return mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

char* Map(size_t num_bytes) {
  void* data = TryToMap(num_bytes);
  FT_CHECK(data != MAP_FAILED);
  return static_cast<char*>(data);
}

}  // namespace

bool CanMap(size_t num_bytes) {
  void* data = TryToMap(num_bytes);
  return data != MAP_FAILED && munmap(data, num_bytes) == 0;
}

size_t NumMappedBytes() { return num_mapped_bytes; }

Pages::Pages(size_t num_bytes) {
  if (num_bytes == 0) return;
  num_bytes_ = RoundUp(num_bytes, kPageBytes);
  num_mapped_bytes += num_bytes_;
  if (num_bytes_ < kHugePageBytes) {
    data_ = Map(num_bytes_);
    return;
  }
  // Maps one huge page too many, then cuts the range to a huge page's boundary.
  char* mapped = Map(num_bytes_ + kHugePageBytes);
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  const size_t head_bytes = RoundUp(address, kHugePageBytes) - address;
  if (head_bytes != 0) munmap(mapped, head_bytes);
  data_ = mapped + head_bytes;
  munmap(mapped + head_bytes + num_bytes_, kHugePageBytes - head_bytes);
  madvise(data_, num_bytes_, MADV_HUGEPAGE);  // only a hint: without huge pages all is the same, but slower
}

Pages::~Pages() {
  if (data_ == nullptr) return;
  munmap(data_, num_bytes_);
  num_mapped_bytes -= num_bytes_;
}

}  // namespace foretoken::kernels::cpu
