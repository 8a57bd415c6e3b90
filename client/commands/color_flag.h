// SPDX-License-Identifier: Apache-2.0
// The flag --color.
#pragma once

#include "absl/status/statusor.h"

namespace foretoken::client {

// Whether --color asks for colour on standard output. INVALID_ARGUMENT names the flag.
absl::StatusOr<bool> ColorFromFlags();

}  // namespace foretoken::client
