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

bool IsLfsPointer(std::span<const std::byte> bytes) {
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return absl::StartsWith(text, kLfsPointerBegin);
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK is for a named pipe: without it open would wait for a writer, and the pipe could not be refused.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  struct stat info;
  const bool is_file = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (!is_file || info.st_size == 0) {
    ::close(fd);
    if (!is_file) return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
    return MappedFile(path, {});
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int map_errno = errno;
  ::close(fd);
  if (data == MAP_FAILED) return absl::ErrnoToStatus(map_errno, absl::StrCat("cannot map ", path));
  MappedFile file(path, {static_cast<const std::byte*>(data), size});
  if (IsLfsPointer(file.bytes())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a Git LFS pointer and not the file itself: run `git lfs pull` in its directory"));
  }
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
  FT_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > kMaxReadBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected at most ", kMaxReadBytes, " bytes, got ", file.bytes().size()));
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

}  // namespace foretoken::base
