// SPDX-License-Identifier: Apache-2.0
// Writes one safetensors file, tensor by tensor, so that only a part of a tensor has to be in memory.
//
//   FT_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, tensors));
//   FT_RETURN_IF_ERROR(writer.Append(bytes));  // the tensors' bytes, in the order of `tensors`, in pieces of any size
//   FT_RETURN_IF_ERROR(writer.Finish());
//
// Errors: UNAVAILABLE names a file that cannot be written. A wrong number of bytes is our own bug and ends the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace foretoken::weights {

// What the header says of a tensor.
struct TensorHeader {
  std::string name;
  std::string dtype;           // as the format spells it: "BF16", "I32", ...
  std::vector<int64_t> shape;  // row-major
  size_t num_bytes = 0;
};

class SafetensorsWriter {
 public:
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path, std::span<const TensorHeader> tensors);
  absl::Status Append(std::span<const std::byte> bytes);
  absl::Status Finish();

 private:
  SafetensorsWriter(std::string path, size_t num_bytes)
      : path_(std::move(path)), file_(path_, std::ios::binary | std::ios::trunc), num_missing_bytes_(num_bytes) {}
  absl::Status Check() const;

  std::string path_;
  std::ofstream file_;
  size_t num_missing_bytes_;
};

}  // namespace foretoken::weights
