// SPDX-License-Identifier: Apache-2.0
// Reads a file's header from the front, little-endian. No length is trusted: what does not lie inside the file is an
// error that names the place.
//
//   ByteCursor cursor(file.bytes(), file.path());
//   FT_ASSIGN_OR_RETURN(const auto version, cursor.Number<uint32_t>("version"));
//
// Errors: INVALID_ARGUMENT with the file and the name of what was read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace foretoken::gguf {

class ByteCursor {
 public:
  ByteCursor(std::span<const std::byte> bytes, absl::string_view path) : bytes_(bytes), path_(path) {}

  size_t position() const { return position_; }
  size_t num_left() const { return bytes_.size() - position_; }

  // The next `count` bytes. `what` names them in a message.
  absl::StatusOr<std::span<const std::byte>> Bytes(uint64_t count, absl::string_view what) {
    if (count > num_left()) {
      return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what, ": expected ", count, " bytes at byte ",
                                                     position_, ", the file has ", num_left(), " more"));
    }
    const std::span<const std::byte> bytes = bytes_.subspan(position_, count);
    position_ += count;
    return bytes;
  }

  template <typename T>
  absl::StatusOr<T> Number(absl::string_view what) {
    absl::StatusOr<std::span<const std::byte>> bytes = Bytes(sizeof(T), what);
    if (!bytes.ok()) return bytes.status();
    T number;
    std::memcpy(&number, bytes->data(), sizeof(T));
    return number;
  }

  // A length of 8 bytes, and that many bytes.
  absl::StatusOr<absl::string_view> String(absl::string_view what) {
    absl::StatusOr<uint64_t> length = Number<uint64_t>(what);
    if (!length.ok()) return length.status();
    absl::StatusOr<std::span<const std::byte>> bytes = Bytes(*length, what);
    if (!bytes.ok()) return bytes.status();
    return absl::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  }

 private:
  std::span<const std::byte> bytes_;
  absl::string_view path_;
  size_t position_ = 0;
};

}  // namespace foretoken::gguf
