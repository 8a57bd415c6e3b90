// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"

namespace foretoken::client {

// What --color says of standard output. INVALID_ARGUMENT names the flag.
absl::StatusOr<bool> ColorFromFlags();

}  // namespace foretoken::client
