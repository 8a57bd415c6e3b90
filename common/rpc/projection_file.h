// SPDX-License-Identifier: Apache-2.0
// The file of a projection in a directory that proposers and verifiers share, so that up to a GiB need not cross the
// network for every verifier. Its name is its digest, so equal drafters share a file, and a reader can tell a wrong
// one.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::rpc {

std::string ProjectionPath(const std::string& directory, absl::string_view digest);

// Leaves a file with these bytes as it is, and leaves the writing to another process that writes it now. A writer that
// was cut off leaves one unfinished file, which the next one overwrites. Errors: the system's, with the path.
absl::Status WriteProjection(const std::string& directory, absl::string_view digest, absl::string_view bytes);

}  // namespace foretoken::rpc
