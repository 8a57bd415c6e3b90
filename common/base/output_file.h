// SPDX-License-Identifier: Apache-2.0
// A new file that is written in pieces. If it is not finished, it is removed again.
//
//   FT_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create("model.safetensors"));
//   FT_RETURN_IF_ERROR(file.Append(bytes));
//   FT_RETURN_IF_ERROR(file.Finish());
//
// Errors: the system's, with the path. Threads: one.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken::base {

class OutputFile {
 public:
  // Everyone may read the file, unless `mode` says otherwise. A file that is there already loses its content.
  static absl::StatusOr<OutputFile> Create(const std::string& path, int mode = 0644);

  OutputFile(OutputFile&& other) noexcept : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}
  OutputFile& operator=(OutputFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(file_, other.file_);
    return *this;
  }
  ~OutputFile();

  // Sets the mode of the file exactly. The mode of Create is less what the process's umask takes away.
  absl::Status SetMode(int mode);
  absl::Status Append(absl::string_view bytes);
  // Returns when all bytes are on the disk. It is the last call.
  absl::Status Finish();

 private:
  OutputFile(std::string path, int file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  int file_;  // a descriptor; -1: finished, or moved from
};

// Returns when the bytes of a file, or the names in a folder, are on the disk.
absl::Status Sync(const std::string& path);

}  // namespace foretoken::base
