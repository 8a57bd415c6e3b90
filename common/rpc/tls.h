// SPDX-License-Identifier: Apache-2.0
// TLS between clients, verifiers and proposers. Files are PEM, and are read again when they change, so that
// certificates can be renewed while streams run on. A renewal must replace certificate and key together: by a symbolic
// link to another folder, as Kubernetes does with a mounted secret, or by renaming a folder.
//
//   const TlsFiles files = {.certificate = "/tls/tls.crt", .key = "/tls/tls.key", .ca = "/tls/ca.crt"};
//   FT_ASSIGN_OR_RETURN(const auto credentials, ServerCredentials(files));
//   builder.AddListeningPort(address, credentials);
//
// A handshake with a wrong certificate fails, so no call reaches a service.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace foretoken::rpc {

// The TLS of one side of a connection. All empty: none.
struct TlsFiles {
  std::string certificate, key;  // its own; both or none
  std::string ca;                // certificates of the authorities that the peer's certificate must come from
  // The identities of peers that may connect, as URI or DNS names in their certificates, for example
  // spiffe://cluster/ns/llm/sa/proposer. Empty: every peer whose certificate comes from `ca`.
  std::vector<std::string> identities = {};
  absl::Duration refresh = absl::Seconds(10);  // between looks at the files, at least 1 s

  bool is_used() const { return !certificate.empty() || !key.empty() || !ca.empty() || !identities.empty(); }
};

// INVALID_ARGUMENT if a file is missing or unreadable, or if the files do not go together.
absl::Status CheckTls(const TlsFiles& files);

// Without files: no encryption. With `ca` every client must have a certificate (mutual TLS).
// Errors: those of CheckTls; INVALID_ARGUMENT without a certificate.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& files);

// Without files: no encryption, unless `is_secure`. Without `ca` the system's authorities count. The server's
// certificate must have the name that the client called, or one of `identities` if those are given. Errors: those of
// CheckTls.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentials(const TlsFiles& files,
                                                                             bool is_secure = false);

// Whether only this machine reaches HOST:PORT: localhost, 127.0.0.0/8 or ::1.
bool IsLoopback(absl::string_view address);

}  // namespace foretoken::rpc
