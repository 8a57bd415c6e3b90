// SPDX-License-Identifier: Apache-2.0
#include "client/connect_flags.h"

#include <string>

#include "absl/flags/flag.h"
#include "absl/time/time.h"

ABSL_FLAG(std::string, target, "localhost:50051", "Where the verifier serves: host:port, or any name gRPC resolves");
ABSL_FLAG(absl::Duration, connect_timeout, absl::Seconds(10), "How long to wait for the connection, for example 500ms");
ABSL_FLAG(absl::Duration, timeout, absl::InfiniteDuration(), "The deadline of each call, its whole stream included");

namespace foretoken::client {

absl::StatusOr<GenerationClient> ConnectFromFlags() {
  const absl::Duration connect_timeout = absl::GetFlag(FLAGS_connect_timeout);
  const absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  if (connect_timeout <= absl::ZeroDuration() || connect_timeout > absl::Hours(24)) {
    return absl::InvalidArgumentError("--connect_timeout: expected more than 0 and at most 24h");
  }
  if (timeout <= absl::ZeroDuration()) return absl::InvalidArgumentError("--timeout: expected more than 0");
  ConnectOptions options = {.target = absl::GetFlag(FLAGS_target),
                            .connect_timeout_ms = static_cast<int32_t>(absl::ToInt64Milliseconds(connect_timeout))};
  if (timeout < absl::Hours(24 * 365)) options.call_timeout_ms = absl::ToInt64Milliseconds(timeout);
  return GenerationClient::Connect(options);
}

}  // namespace foretoken::client
