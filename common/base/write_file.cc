// SPDX-License-Identifier: Apache-2.0
#include "common/base/write_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/output_file.h"
#include "common/base/status_macros.h"

namespace foretoken::base {

absl::Status WriteFile(const std::string& path, absl::string_view bytes, int mode) {
  const std::string unfinished = path + ".unfinished";
  FT_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(unfinished, mode));
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

}  // namespace foretoken::base
