// SPDX-License-Identifier: Apache-2.0
// Every option of a GenerateRequest as a command-line flag. A flag that is not given leaves its field unset, so that
// the server's default holds.
#pragma once

#include "absl/status/statusor.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

// All but the prompt. INVALID_ARGUMENT names the flag that cannot be read; what values make sense is the server's to
// say.
absl::StatusOr<foretoken::v1::GenerateRequest> RequestFromFlags();

}  // namespace foretoken::client
