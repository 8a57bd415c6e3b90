// SPDX-License-Identifier: Apache-2.0
// Scratch memory of the calling thread. It grows to the largest request and is reused, so that ops do not allocate. One
// user at a time: the next call on the same thread may move the memory. It is aligned for the widest vectors; the last
// user's contents remain.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace foretoken::kernels::cpu {

inline constexpr std::align_val_t kWorkspaceAlignment{128};

struct FreeWorkspace {
  void operator()(std::byte* bytes) const { ::operator delete(bytes, kWorkspaceAlignment); }
};

template <typename T>
T* ThreadWorkspace(size_t count) {
  thread_local std::unique_ptr<std::byte, FreeWorkspace> bytes;
  thread_local size_t capacity = 0;
  if (count * sizeof(T) > capacity) {
    bytes.reset();
    capacity = count * sizeof(T);
    bytes.reset(static_cast<std::byte*>(::operator new(capacity, kWorkspaceAlignment)));
  }
  return reinterpret_cast<T*>(bytes.get());
}

}  // namespace foretoken::kernels::cpu
