// SPDX-License-Identifier: Apache-2.0
// A view of a dense row-major tensor that another object owns. The memory may be a device's: only a Backend may follow
// `data`, unless a comment says that it is host memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/host_device.h"

namespace foretoken::kernels {

struct Shape {
  int rank = 0;
  std::array<int64_t, 4> dims{};

  constexpr Shape() = default;
  constexpr explicit Shape(int64_t d0) : rank(1), dims{d0} {}
  constexpr Shape(int64_t d0, int64_t d1) : rank(2), dims{d0, d1} {}
  constexpr Shape(int64_t d0, int64_t d1, int64_t d2) : rank(3), dims{d0, d1, d2} {}
  constexpr int64_t operator[](int i) const { return dims[i]; }
  constexpr int64_t num_elements() const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= dims[i];
    return count;
  }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

struct ConstTensorView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  template <typename T>
  FT_HOST_DEVICE const T* as() const {
    return static_cast<const T*>(data);
  }
  size_t num_bytes() const { return static_cast<size_t>(shape.num_elements()) * SizeOf(dtype); }
};

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  template <typename T>
  FT_HOST_DEVICE T* as() const {
    return static_cast<T*>(data);
  }
  size_t num_bytes() const { return static_cast<size_t>(shape.num_elements()) * SizeOf(dtype); }
  // NOLINTNEXTLINE(google-explicit-constructor): whatever may be written may be read
  operator ConstTensorView() const { return {data, dtype, shape}; }
};

}  // namespace foretoken::kernels
