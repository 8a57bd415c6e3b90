// SPDX-License-Identifier: Apache-2.0
#include "client/commands/connect_flags.h"

#include <algorithm>
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"

ABSL_FLAG(std::string, target, "localhost:50051",
          "Address of the verifier: HOST:PORT, https://HOST:PORT for TLS, or any name that gRPC resolves");
ABSL_FLAG(absl::Duration, connect_timeout, absl::Seconds(3), "Longest wait for the connection, for example 500ms");
ABSL_FLAG(absl::Duration, timeout, absl::InfiniteDuration(), "Longest time for a call, its whole stream included");
ABSL_FLAG(std::string, tls_ca, "", "PEM file of the authorities of the server's certificate; turns TLS on");
ABSL_FLAG(std::string, tls_certificate, "", "PEM file of the certificate that the server asks for");
ABSL_FLAG(std::string, tls_key, "", "PEM file of that certificate's key");
ABSL_FLAG(std::string, token_file, "", "File with the bearer token that the server asks for");

namespace foretoken::client {
namespace {

struct Target {
  std::string name;        // for gRPC
  bool is_secure = false;  // https://
};

// The flag may also be an address with http://, https:// or grpc://.
absl::StatusOr<Target> ReadTarget() {
  const std::string flag = absl::GetFlag(FLAGS_target);
  absl::string_view name = flag;
  Target target;
  for (const absl::string_view scheme : {"https://", "http://", "grpc://"}) {
    if (!absl::StartsWithIgnoreCase(name, scheme)) continue;
    target.is_secure = scheme == "https://";
    name.remove_prefix(scheme.size());
    absl::ConsumeSuffix(&name, "/");
    break;
  }
  if (name.empty()) return absl::InvalidArgumentError(absl::StrCat("--target: expected HOST:PORT, got \"", flag, "\""));
  const absl::string_view port = name.substr(name.rfind(':') + 1);  // or the whole name
  if (port != name && !port.empty() && std::ranges::all_of(port, [](char c) { return absl::ascii_isdigit(c); }) &&
      base::PortOf(name).value_or(0) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--target: expected HOST:PORT with a port of 1 to 65535, got \"", flag, "\""));
  }
  target.name = std::string(name);
  return target;
}

// The file holds the token alone, so that no token is on a command line.
absl::Status AddToken(Metadata& metadata) {
  const std::string path = absl::GetFlag(FLAGS_token_file);
  if (path.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> contents = base::ReadFile(path);
  if (!contents.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--token_file: ", contents.status().message()));
  }
  const absl::string_view token = absl::StripAsciiWhitespace(*contents);
  if (token.empty() || !std::ranges::all_of(token, [](char c) { return absl::ascii_isgraph(c); })) {
    return absl::InvalidArgumentError(absl::StrCat("--token_file: expected one token in ", path));
  }
  metadata.push_back({"authorization", absl::StrCat("Bearer ", token)});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> TargetFromFlags() {
  FT_ASSIGN_OR_RETURN(Target target, ReadTarget());
  return std::move(target.name);
}

absl::StatusOr<GenerationClient> ConnectFromFlags(Metadata metadata, const Cancellation* cancellation) {
  const absl::Duration connect_timeout = absl::GetFlag(FLAGS_connect_timeout);
  const absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  if (connect_timeout <= absl::ZeroDuration() || connect_timeout > absl::Hours(24)) {
    return absl::InvalidArgumentError("--connect_timeout: expected more than 0 and at most 24h");
  }
  if (timeout <= absl::ZeroDuration()) return absl::InvalidArgumentError("--timeout: expected more than 0");
  FT_ASSIGN_OR_RETURN(const Target target, ReadTarget());
  FT_RETURN_IF_ERROR(AddToken(metadata));
  const int64_t connect_timeout_ms = absl::ToInt64Milliseconds(absl::Ceil(connect_timeout, absl::Milliseconds(1)));
  ConnectOptions options = {.target = target.name,
                            .connect_timeout_ms = static_cast<int32_t>(connect_timeout_ms),
                            .on_slow_connect =
                                [&] {
                                  std::cerr << "foretoken: connecting to " << target.name << ", for at most "
                                            << absl::FormatDuration(connect_timeout) << " ..." << std::endl;
                                },
                            .metadata = std::move(metadata),
                            .tls = {.certificate = absl::GetFlag(FLAGS_tls_certificate),
                                    .key = absl::GetFlag(FLAGS_tls_key),
                                    .ca = absl::GetFlag(FLAGS_tls_ca)},
                            .is_secure = target.is_secure,
                            .cancellation = cancellation};
  const bool is_encrypted = options.is_secure || options.tls.is_used();
  const bool is_local = rpc::IsLoopback(target.name) || absl::StartsWith(target.name, "unix:");
  if (!absl::GetFlag(FLAGS_token_file).empty() && !is_encrypted && !is_local) {
    return absl::InvalidArgumentError(
        "--token_file: anybody on the way could read the token: expected --tls_ca, or --target=https://HOST:PORT");
  }
  if (timeout < absl::Hours(24 * 365)) options.call_timeout_ms = absl::ToInt64Milliseconds(timeout);
  absl::StatusOr<GenerationClient> client = GenerationClient::Connect(options);
  if (client.ok() || !absl::IsUnavailable(client.status())) return client;
  return absl::UnavailableError(absl::StrCat(client.status().message(), ": is foretoken_verifier running there, ",
                                             is_encrypted
                                                 ? "with TLS? See --target, --tls_ca, --tls_certificate, --tls_key"
                                                 : "without TLS? See --target, --tls_ca",
                                             " and --connect_timeout"));
}

}  // namespace foretoken::client
