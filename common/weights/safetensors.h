// SPDX-License-Identifier: Apache-2.0
// One safetensors file: eight bytes of header length, a JSON header, and the tensors' bytes.
//
//   FT_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open("model.safetensors"));
//   const StoredTensor& norm = file.tensors().at("model.norm.weight");
//
// The whole header is checked before any tensor is returned: its length, its JSON, every dtype, shape and offset. The
// tensors must cover the data without a gap or an overlap, as the format demands.
// Errors: INVALID_ARGUMENT with the file, the tensor, the expected and the given value; and as MappedFile::Open.
// Threads: immutable after Open. If a mapped file is truncated, the process ends (SIGBUS), as with any mapping.
// Source: huggingface/safetensors, README "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mapped_file.h"

namespace foretoken::weights {

struct StoredTensor {
  std::string dtype;                 // as the file spells it: "BF16", "I64", ...
  std::vector<int64_t> shape;        // row-major; empty for a scalar
  std::span<const std::byte> bytes;  // exactly the shape's bytes, inside the mapping
  // Only in GGUF: in each head of D rows the file's row 2j is the model's row j, and row 2j + 1 is row j + D/2.
  std::optional<int64_t> interleaved_head_dim;
};

// The place in the file of a row of the model.
inline int64_t StoredRow(const StoredTensor& tensor, int64_t row) {
  if (!tensor.interleaved_head_dim) return row;
  const int64_t head_dim = *tensor.interleaved_head_dim, in_head = row % head_dim, half = head_dim / 2;
  return row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
}

using StoredTensors = absl::flat_hash_map<std::string, StoredTensor>;

// Reads the tensors of a whole safetensors file in memory, as views into `file`. `path` is for messages only.
absl::StatusOr<StoredTensors> ReadSafetensors(std::span<const std::byte> file, absl::string_view path);

class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const StoredTensors& tensors() const { return tensors_; }

 private:
  SafetensorsFile(base::MappedFile file, StoredTensors tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}

  base::MappedFile file_;
  StoredTensors tensors_;  // views into file_
};

}  // namespace foretoken::weights
