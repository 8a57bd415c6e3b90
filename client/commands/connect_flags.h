// SPDX-License-Identifier: Apache-2.0
// The command line's --target, --connect_timeout and --timeout.
#pragma once

#include "absl/status/statusor.h"
#include "client/generation_client.h"

namespace foretoken::client {

// INVALID_ARGUMENT names the flag; else as GenerationClient::Connect.
absl::StatusOr<GenerationClient> ConnectFromFlags();

}  // namespace foretoken::client
