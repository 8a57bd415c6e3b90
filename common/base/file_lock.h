// SPDX-License-Identifier: Apache-2.0
// A lock that one holder has at a time, among all processes of a machine, and among machines if the file system shares
// locks. The operating system ends the lock with the process, so no crash leaves it behind.
//
//   FT_ASSIGN_OR_RETURN(const FileLock lock, FileLock::Take("/var/lib/outputs.lock"));
//
// The file is empty and stays: if it were removed, two holders could lock two files of one name.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace foretoken::base {

class FileLock {
 public:
  // Does not wait. FAILED_PRECONDITION: another holder has it. Other errors: the file cannot be created or locked.
  static absl::StatusOr<FileLock> Take(const std::string& path);

  FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~FileLock();

 private:
  explicit FileLock(int file) : file_(file) {}

  int file_;  // a descriptor; -1: moved from
};

}  // namespace foretoken::base
