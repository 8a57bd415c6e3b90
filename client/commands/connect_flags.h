// SPDX-License-Identifier: Apache-2.0
// The flags --target, --connect_timeout and --timeout.
#pragma once

#include "absl/status/statusor.h"
#include "client/generation_client.h"

namespace foretoken::client {

// Connects to the target of the flags. INVALID_ARGUMENT names the flag; otherwise as GenerationClient::Connect.
absl::StatusOr<GenerationClient> ConnectFromFlags();

}  // namespace foretoken::client
