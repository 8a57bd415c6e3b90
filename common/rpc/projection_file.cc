// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/projection_file.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/file_lock.h"
#include "common/base/status_macros.h"
#include "common/base/write_file.h"

namespace foretoken::rpc {

std::string ProjectionPath(const std::string& directory, absl::string_view digest) {
  return absl::StrCat(directory, "/", digest, ".projection");
}

absl::Status WriteProjection(const std::string& directory, absl::string_view digest, absl::string_view bytes) {
  constexpr int kReadableByAll = 0644;  // a verifier may run as another user, and a published head is no secret
  const std::string path = ProjectionPath(directory, digest);
  std::error_code error;
  if (std::filesystem::file_size(path, error) == bytes.size() && !error) return absl::OkStatus();
  const absl::StatusOr<base::FileLock> lock = base::FileLock::Take(path + ".lock");
  if (absl::IsFailedPrecondition(lock.status())) return absl::OkStatus();  // another proposer writes the same bytes
  FT_RETURN_IF_ERROR(lock.status());
  return base::WriteFile(path, bytes, kReadableByAll);
}

}  // namespace foretoken::rpc
