// SPDX-License-Identifier: Apache-2.0
// The flags --target, --connect_timeout, --timeout, --tls_... and --token_file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/generation_client.h"

namespace foretoken::client {

// The verifier's address for gRPC, from --target. INVALID_ARGUMENT for a flag without one.
absl::StatusOr<std::string> TargetFromFlags();

// Connects to the target of the flags. Every call carries the metadata. The cancellation may end the wait for the
// connection. INVALID_ARGUMENT names the flag; otherwise as GenerationClient::Connect.
absl::StatusOr<GenerationClient> ConnectFromFlags(Metadata metadata = {}, const Cancellation* cancellation = nullptr);

}  // namespace foretoken::client
