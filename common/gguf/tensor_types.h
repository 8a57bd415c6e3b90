// SPDX-License-Identifier: Apache-2.0
// The element types of GGUF tensors: their numbers, names and sizes. A row is a whole number of blocks.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken::gguf {

struct TensorType {
  uint32_t id = 0;
  absl::string_view name;
  int64_t block_values = 1;
  int64_t block_bytes = 0;
};

// The type with this number in the file. Errors: INVALID_ARGUMENT, by the type's name, if it is none that we read.
absl::StatusOr<TensorType> FindTensorType(uint32_t id);

}  // namespace foretoken::gguf
