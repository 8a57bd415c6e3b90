// SPDX-License-Identifier: Apache-2.0
#include "common/base/write_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/output_file.h"
#include "common/base/status_macros.h"

namespace foretoken::base {
namespace {

std::string Unfinished(const std::string& path) { return path + ".unfinished"; }

// Writes the unfinished file of a path and puts it in its place.
absl::Status WriteAndRename(OutputFile file, absl::string_view bytes, const std::string& path) {
  const std::string unfinished = Unfinished(path);
  FT_RETURN_IF_ERROR(file.Append(bytes));
  FT_RETURN_IF_ERROR(file.Finish());
  if (::rename(unfinished.c_str(), path.c_str()) != 0) {
    absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("cannot rename to ", path));
    ::unlink(unfinished.c_str());
    return status;
  }
  // A rename is on the disk only when its folder is.
  const size_t slash = path.rfind('/');
  return Sync(slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

}  // namespace

absl::Status WriteFile(const std::string& path, absl::string_view bytes, int mode) {
  FT_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(Unfinished(path), mode));
  return WriteAndRename(std::move(file), bytes, path);
}

absl::Status ReplaceFile(const std::string& path, absl::string_view bytes, int new_mode) {
  struct stat former = {};
  if (::stat(path.c_str(), &former) != 0) return WriteFile(path, bytes, new_mode);
  // Nobody else may open the file before it has its mode.
  FT_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(Unfinished(path), 0600));
  FT_RETURN_IF_ERROR(file.SetMode(former.st_mode & 0777));
  return WriteAndRename(std::move(file), bytes, path);
}

}  // namespace foretoken::base
