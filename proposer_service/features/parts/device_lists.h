// SPDX-License-Identifier: Apache-2.0
// Lists of row and slot numbers in the backend's memory, for ops that take lists. Each list has a place of its own, and
// a later list of the same place replaces it.
//
// Threads: the backend's caller.
#pragma once

#include <cstdint>
#include <span>

#include "common/tensor/tensor.h"
#include "kernels/backend.h"
#include "kernels/check.h"

namespace foretoken::proposer {

class DeviceLists {
 public:
  DeviceLists(kernels::Backend& backend, int32_t num_places, int32_t max_values)
      : backend_(backend),
        max_values_(max_values),
        lists_(backend, kernels::DType::kI32, kernels::Shape(num_places, max_values)) {}

  const int32_t* Upload(std::span<const int32_t> values, int32_t place) {
    FT_CHECK(values.size() <= static_cast<size_t>(max_values_));
    int32_t* const list = lists_.view().as<int32_t>() + int64_t{place} * max_values_;
    backend_.Copy(list, values.data(), values.size_bytes(), kernels::CopyKind::kToDevice);
    return list;
  }

 private:
  kernels::Backend& backend_;
  const int32_t max_values_;
  tensor::Tensor lists_;  // [places, max values] i32
};

}  // namespace foretoken::proposer
