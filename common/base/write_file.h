// SPDX-License-Identifier: Apache-2.0
// Writes a file whole or not at all. A reader finds either the old bytes or the new ones, even after a crash or on a
// full disk.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::base {

// PATH.unfinished holds the bytes until they are complete, so a path has one writer at a time. Only its owner may read
// the file, unless `mode` says otherwise. Errors: the system's, with the path.
absl::Status WriteFile(const std::string& path, absl::string_view bytes, int mode = 0600);

// As WriteFile, but a file that is there keeps its mode, because it may be private. A new file gets `new_mode`.
absl::Status ReplaceFile(const std::string& path, absl::string_view bytes, int new_mode);

}  // namespace foretoken::base
