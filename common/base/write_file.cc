// SPDX-License-Identifier: Apache-2.0
#include "common/base/write_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace foretoken::base {
namespace {

absl::Status FileError(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::Status WriteAll(int file, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t num_written = write(file, bytes.data(), bytes.size());
    if (num_written < 0 && errno != EINTR) return FileError("write", path);
    if (num_written > 0) bytes.remove_prefix(static_cast<size_t>(num_written));
  }
  if (fsync(file) != 0) return FileError("sync", path);
  return absl::OkStatus();
}

// Syncs the folder of a file. A rename is on the disk only then.
absl::Status SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return FileError("open", folder);
  absl::Status status = fsync(file) == 0 ? absl::OkStatus() : FileError("sync", folder);
  close(file);
  return status;
}

}  // namespace

absl::Status WriteFile(const std::string& path, absl::string_view bytes, int mode) {
  const std::string unfinished = path + ".unfinished";
  const int file = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (file < 0) return FileError("create", unfinished);
  absl::Status status = WriteAll(file, bytes, unfinished);
  if (close(file) != 0 && status.ok()) status = FileError("close", unfinished);
  if (status.ok() && rename(unfinished.c_str(), path.c_str()) != 0) status = FileError("rename to", path);
  if (!status.ok()) {
    unlink(unfinished.c_str());
    return status;
  }
  return SyncFolderOf(path);
}

}  // namespace foretoken::base
