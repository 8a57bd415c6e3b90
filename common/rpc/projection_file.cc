// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/projection_file.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/file_lock.h"
#include "common/base/status_macros.h"
#include "common/base/write_file.h"

namespace foretoken::rpc {
namespace {

// Of a regular file: to open a pipe would wait for its writer.
bool HasBytes(const std::string& path, absl::string_view bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || std::filesystem::file_size(path, error) != bytes.size()) {
    return false;
  }
  std::ifstream file(path, std::ios::binary);
  std::vector<char> piece(size_t{1} << 20);
  for (size_t begin = 0; begin < bytes.size(); begin += piece.size()) {
    const absl::string_view wanted = bytes.substr(begin, piece.size());
    if (!file.read(piece.data(), static_cast<std::streamsize>(wanted.size()))) return false;
    if (absl::string_view(piece.data(), wanted.size()) != wanted) return false;
  }
  return true;
}

}  // namespace

std::string ProjectionPath(const std::string& directory, absl::string_view digest) {
  return absl::StrCat(directory, "/", digest, ".projection");
}

absl::Status WriteProjection(const std::string& directory, absl::string_view digest, absl::string_view bytes) {
  constexpr int kReadableByAll = 0644;  // a verifier may run as another user, and a published head is no secret
  const std::string path = ProjectionPath(directory, digest);
  if (HasBytes(path, bytes)) return absl::OkStatus();
  const absl::StatusOr<base::FileLock> lock = base::FileLock::Take(path + ".lock");
  if (absl::IsFailedPrecondition(lock.status())) return absl::OkStatus();  // another proposer writes the same bytes
  FT_RETURN_IF_ERROR(lock.status());
  return base::WriteFile(path, bytes, kReadableByAll);
}

}  // namespace foretoken::rpc
