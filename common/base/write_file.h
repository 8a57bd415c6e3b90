// SPDX-License-Identifier: Apache-2.0
// Writes a file whole or not at all: whoever opens the path finds the old bytes or the new ones, also after a crash or
// on a full disk.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::base {

// `unfinished` is a second path in the folder, which holds the bytes until they are complete. Only its owner may read
// the file, unless `mode` says otherwise. Errors: the system's, with the path.
absl::Status WriteFile(const std::string& path, absl::string_view bytes, const std::string& unfinished,
                       int mode = 0600);

}  // namespace foretoken::base
