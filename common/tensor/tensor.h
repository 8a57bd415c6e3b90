// SPDX-License-Identifier: Apache-2.0
// A tensor that owns its bytes on a device.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"

namespace foretoken::tensor {

class Tensor {
 public:
  Tensor() = default;
  Tensor(kernels::Backend& backend, kernels::DType dtype, kernels::Shape shape)
      : dtype_(dtype), shape_(shape), buffer_(backend.Allocate(view().num_bytes())) {}

  // A one-dimensional f32 tensor with these host values.
  static Tensor FromHost(kernels::Backend& backend, std::span<const float> values) {
    Tensor tensor(backend, kernels::DType::kF32, kernels::Shape(static_cast<int64_t>(values.size())));
    backend.Copy(tensor.view().data, values.data(), values.size_bytes(), kernels::CopyKind::kToDevice);
    return tensor;
  }

  bool empty() const { return buffer_ == nullptr; }
  kernels::TensorView view() const { return {buffer_.get(), dtype_, shape_}; }
  // The first rows of a matrix.
  kernels::TensorView rows(int64_t num_rows) const {
    return {buffer_.get(), dtype_, kernels::Shape(num_rows, shape_[1])};
  }
  // Null if empty: the form in which ops take optional vectors.
  const float* f32() const { return static_cast<const float*>(buffer_.get()); }

 private:
  kernels::DType dtype_ = kernels::DType::kF32;
  kernels::Shape shape_;
  kernels::Buffer buffer_;
};

}  // namespace foretoken::tensor
