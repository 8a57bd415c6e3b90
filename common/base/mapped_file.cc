// SPDX-License-Identifier: Apache-2.0
#include "common/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace foretoken::base {

namespace {

// In a clone without Git LFS each large file is replaced by a text that begins with these words.
constexpr absl::string_view kLfsPointerBegin = "version https://git-lfs.github.com/spec/";

absl::Status CheckNoLfsPointer(absl::string_view contents, const std::string& path) {
  if (!absl::StartsWith(contents, kLfsPointerBegin)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is a Git LFS pointer and not the file itself: run `git lfs pull` in its directory"));
}

// An open regular file.
struct OpenedFile {
  OpenedFile(int fd, size_t size) : fd(fd), size(size) {}
  OpenedFile(OpenedFile&& other) noexcept : fd(std::exchange(other.fd, -1)), size(other.size) {}
  ~OpenedFile() {
    if (fd >= 0) ::close(fd);
  }
  int fd;
  size_t size;
};

absl::StatusOr<OpenedFile> OpenRegular(const std::string& path) {
  // O_NONBLOCK is for a named pipe: without it open would wait for a writer, and the pipe could not be refused.
  OpenedFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), 0);
  struct stat info;
  if (file.fd < 0) {
    const int error = errno;
    // The cache of Hugging Face has links. A file that somebody meant to be there is not one that may be absent.
    if (error == ENOENT && ::lstat(path.c_str(), &info) == 0) {
      return absl::FailedPreconditionError(absl::StrCat(path, " is a link to a file that is not there"));
    }
    return absl::ErrnoToStatus(error, absl::StrCat("cannot open ", path));
  }
  if (::fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  file.size = static_cast<size_t>(info.st_size);
  return file;
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  FT_ASSIGN_OR_RETURN(const OpenedFile opened, OpenRegular(path));
  if (opened.size == 0) return MappedFile(path, {});
  void* data = ::mmap(nullptr, opened.size, PROT_READ, MAP_PRIVATE, opened.fd, 0);
  if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  MappedFile file(path, {static_cast<const std::byte*>(data), opened.size});
  FT_RETURN_IF_ERROR(
      CheckNoLfsPointer({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path));
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  FT_ASSIGN_OR_RETURN(const OpenedFile file, OpenRegular(path));
  if (file.size > kMaxReadBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected at most ", kMaxReadBytes, " bytes, got ", file.size));
  }
  std::string contents(file.size, '\0');
  size_t num_read = 0;
  while (num_read < contents.size()) {
    const ssize_t num = ::read(file.fd, contents.data() + num_read, contents.size() - num_read);
    if (num < 0 && errno == EINTR) continue;
    if (num < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
    if (num == 0) break;  // the file has become shorter
    num_read += static_cast<size_t>(num);
  }
  contents.resize(num_read);
  FT_RETURN_IF_ERROR(CheckNoLfsPointer(contents, path));
  return contents;
}

}  // namespace foretoken::base
