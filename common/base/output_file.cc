// SPDX-License-Identifier: Apache-2.0
#include "common/base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace foretoken::base {
namespace {

absl::Status FileError(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

}  // namespace

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path, int mode) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (file < 0) return FileError("create", path);
  return OutputFile(path, file);
}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(path_.c_str());
}

absl::Status OutputFile::SetMode(int mode) {
  if (::fchmod(file_, static_cast<mode_t>(mode)) != 0) return FileError("set the mode of", path_);
  return absl::OkStatus();
}

absl::Status OutputFile::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t num_written = ::write(file_, bytes.data(), bytes.size());
    if (num_written < 0 && errno != EINTR) return FileError("write", path_);
    if (num_written > 0) bytes.remove_prefix(static_cast<size_t>(num_written));
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Finish() {
  if (::fsync(file_) != 0) return FileError("sync", path_);
  if (::close(std::exchange(file_, -1)) == 0) return absl::OkStatus();
  absl::Status status = FileError("close", path_);
  ::unlink(path_.c_str());
  return status;
}

absl::Status Sync(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return FileError("open", path);
  // EINVAL: the file system syncs no folders.
  absl::Status status = ::fsync(file) == 0 || errno == EINVAL ? absl::OkStatus() : FileError("sync", path);
  ::close(file);
  return status;
}

}  // namespace foretoken::base
