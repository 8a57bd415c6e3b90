// SPDX-License-Identifier: Apache-2.0
#include "client/commands/result_file.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/write_file.h"

namespace foretoken::client {

absl::Status WriteResultFile(const std::string& path, absl::string_view text) {
  constexpr int kReadableByAll = 0644;
  std::error_code ignored;
  const std::filesystem::file_type type = std::filesystem::symlink_status(path, ignored).type();
  if (type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found) {
    absl::Status status = base::ReplaceFile(path, text, kReadableByAll);
    const bool is_fixed = absl::IsPermissionDenied(status) || absl::IsFailedPrecondition(status);  // EACCES, EBUSY
    if (!is_fixed) return status;
  }
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace foretoken::client
