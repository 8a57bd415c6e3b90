// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/projection_file.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/system_random.h"
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
  return base::WriteFile(path, bytes, absl::StrCat(path, ".unfinished-", absl::Hex(base::SystemRandomBits())),
                         kReadableByAll);
}

}  // namespace foretoken::rpc
