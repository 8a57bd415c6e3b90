// SPDX-License-Identifier: Apache-2.0
// Anonymous memory straight from the system: zeroed, in huge pages where it is large, and returned whole.
#pragma once

#include <cstddef>
#include <utility>

namespace foretoken::kernels::cpu {

// Whether the system grants the process so much more memory. Pages count when they are first touched, so this says
// nothing about memory that other processes will take.
bool CanMap(size_t num_bytes);

// All that Pages of this process hold now, touched or not.
size_t NumMappedBytes();

class Pages {
 public:
  Pages() = default;
  // Aligned to a page, and to 2 MiB from 2 MiB on. Ends the process if no memory is left.
  explicit Pages(size_t num_bytes);
  ~Pages();
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), num_bytes_(std::exchange(other.num_bytes_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(num_bytes_, other.num_bytes_);
    return *this;
  }

  void* data() const { return data_; }
  size_t num_bytes() const { return num_bytes_; }

 private:
  void* data_ = nullptr;
  size_t num_bytes_ = 0;
};

}  // namespace foretoken::kernels::cpu
