// SPDX-License-Identifier: Apache-2.0
// Every option of a GenerateRequest as a command-line flag. A flag that is not given leaves its field unset, so the
// server's default applies.
#pragma once

#include "absl/status/statusor.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

// Makes a request without a prompt. INVALID_ARGUMENT names a flag that cannot be parsed. The server checks the values.
absl::StatusOr<foretoken::v1::GenerateRequest> RequestFromFlags();

}  // namespace foretoken::client
