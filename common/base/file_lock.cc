// SPDX-License-Identifier: Apache-2.0
#include "common/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace foretoken::base {

absl::StatusOr<FileLock> FileLock::Take(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return FileLock(file);
  const int lock_errno = errno;
  ::close(file);
  if (lock_errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is locked by another process"));
  }
  return absl::ErrnoToStatus(lock_errno, absl::StrCat("cannot lock ", path));
}

FileLock::~FileLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace foretoken::base
