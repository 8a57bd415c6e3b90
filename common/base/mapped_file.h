// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only into memory for the life of the object.
//
// Errors: NOT_FOUND or PERMISSION_DENIED with the path; INVALID_ARGUMENT for a path that is not a regular file, or that
// is a pointer to a file that Git LFS has not fetched.
// Threads: immutable after Open.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace foretoken::base {

class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes) : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const std::byte> bytes_;  // empty for an empty file
};

// The largest file that ReadFile reads: twice the largest tokenizer.json of any known model.
inline constexpr size_t kMaxReadBytes = size_t{64} << 20;

// Reads a whole, small file. Unlike a mapping, it may be cut or rewritten meanwhile: the result is then a part of it,
// or of both. Errors as MappedFile::Open, and INVALID_ARGUMENT for a file above kMaxReadBytes.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace foretoken::base
