// SPDX-License-Identifier: Apache-2.0
// Writes one safetensors file, tensor by tensor, so that only a part of a tensor has to be in memory. A file that is
// not finished is removed again.
//
//   FT_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, tensors));
//   FT_RETURN_IF_ERROR(writer.Append(bytes));  // the tensors' bytes, in the order of `tensors`, in pieces of any size
//   FT_RETURN_IF_ERROR(writer.Finish());       // they are on the disk
//
// Errors: the system's, with the path. A wrong number of bytes is our own bug and ends the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/output_file.h"

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
  SafetensorsWriter(base::OutputFile file, size_t num_bytes) : file_(std::move(file)), num_missing_bytes_(num_bytes) {}

  base::OutputFile file_;
  size_t num_missing_bytes_;
};

}  // namespace foretoken::weights
