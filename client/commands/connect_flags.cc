// SPDX-License-Identifier: Apache-2.0
#include "client/commands/connect_flags.h"

#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"

ABSL_FLAG(std::string, target, "localhost:50051", "Address of the verifier: HOST:PORT, or any name that gRPC resolves");
ABSL_FLAG(absl::Duration, connect_timeout, absl::Seconds(3), "Longest wait for the connection, for example 500ms");
ABSL_FLAG(absl::Duration, timeout, absl::InfiniteDuration(), "Longest time for a call, its whole stream included");

namespace foretoken::client {
namespace {

// The target as a name for gRPC. The flag may also be an http:// address.
absl::StatusOr<std::string> TargetFromFlags() {
  const std::string flag = absl::GetFlag(FLAGS_target);
  absl::string_view target = flag;
  if (absl::StartsWithIgnoreCase(target, "https://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--target: expected HOST:PORT, got \"", flag, "\": connections are not encrypted"));
  }
  if (absl::StartsWithIgnoreCase(target, "http://")) {
    target.remove_prefix(absl::string_view("http://").size());
    absl::ConsumeSuffix(&target, "/");
  }
  if (target.empty())
    return absl::InvalidArgumentError(absl::StrCat("--target: expected HOST:PORT, got \"", flag, "\""));
  return std::string(target);
}

}  // namespace

absl::StatusOr<GenerationClient> ConnectFromFlags() {
  const absl::Duration connect_timeout = absl::GetFlag(FLAGS_connect_timeout);
  const absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  if (connect_timeout <= absl::ZeroDuration() || connect_timeout > absl::Hours(24)) {
    return absl::InvalidArgumentError("--connect_timeout: expected more than 0 and at most 24h");
  }
  if (timeout <= absl::ZeroDuration()) return absl::InvalidArgumentError("--timeout: expected more than 0");
  FT_ASSIGN_OR_RETURN(const std::string target, TargetFromFlags());
  ConnectOptions options = {.target = target,
                            .connect_timeout_ms = static_cast<int32_t>(absl::ToInt64Milliseconds(connect_timeout)),
                            .on_slow_connect = [&] {
                              std::cerr << "foretoken: connecting to " << target << ", for at most "
                                        << absl::FormatDuration(connect_timeout) << " ..." << std::endl;
                            }};
  if (timeout < absl::Hours(24 * 365)) options.call_timeout_ms = absl::ToInt64Milliseconds(timeout);
  absl::StatusOr<GenerationClient> client = GenerationClient::Connect(options);
  if (client.ok()) return client;
  return absl::Status(client.status().code(),
                      absl::StrCat(client.status().message(),
                                   ": is foretoken_verifier running there? See --target and --connect_timeout"));
}

}  // namespace foretoken::client
