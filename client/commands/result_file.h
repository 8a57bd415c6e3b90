// SPDX-License-Identifier: Apache-2.0
// A file that a command writes for its user.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::client {

// Replaces a regular file as a whole, so that a full disk leaves the former one, and keeps its mode. It writes in place
// whatever has no such replacement: /dev/stdout, a pipe, a link, and a file that is mounted or whose folder takes no
// other file. Errors: the system's, with the path.
absl::Status WriteResultFile(const std::string& path, absl::string_view text);

}  // namespace foretoken::client
