// SPDX-License-Identifier: Apache-2.0
// One GGUF file: a header of keys, a list of tensors, and the tensors' bytes.
//
//   FT_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open("model.gguf"));
//   const GgufTensor& norm = file.tensors().at("output_norm.weight");
//
// The whole header is checked before anything is returned: every length and count against the file's size, types,
// dimensions, offsets and their alignment, names that occur twice, tensors that overlap.
// Errors: INVALID_ARGUMENT with the file, the key or tensor, the expected and the given value; and as MappedFile::Open.
// Threads: immutable after Open. If a mapped file is truncated, the process ends (SIGBUS), as with any mapping.
// Source: ggml-org/ggml, docs/gguf.md, versions 2 and 3, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mapped_file.h"
#include "common/gguf/metadata.h"
#include "common/gguf/tensor_types.h"

namespace foretoken::gguf {

struct GgufTensor {
  TensorType type;
  std::vector<int64_t> shape;        // row-major: the reverse of the file's order
  std::span<const std::byte> bytes;  // exactly the shape's bytes, inside the mapping
};

using GgufTensors = absl::flat_hash_map<std::string, GgufTensor>;

struct GgufContent {
  Metadata metadata;
  GgufTensors tensors;
};

// Reads a whole file in memory. Tensors and values are views into `file`. `path` is for messages only.
absl::StatusOr<GgufContent> ReadGguf(std::span<const std::byte> file, const std::string& path);

class GgufFile {
 public:
  static absl::StatusOr<GgufFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const Metadata& metadata() const { return content_.metadata; }
  const GgufTensors& tensors() const { return content_.tensors; }
  // The mapping alone; the object has no other use afterwards.
  base::MappedFile TakeMapping() && { return std::move(file_); }

 private:
  GgufFile(base::MappedFile file, GgufContent content) : file_(std::move(file)), content_(std::move(content)) {}

  base::MappedFile file_;
  GgufContent content_;  // views into file_
};

}  // namespace foretoken::gguf
