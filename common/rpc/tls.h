// SPDX-License-Identifier: Apache-2.0
// TLS between clients, verifiers and proposers. Files are PEM, and are read again when they change (tls_files.h), so
// that certificates can be renewed while streams run on.
//
//   const TlsFiles files = {.certificate = "/tls/tls.crt", .key = "/tls/tls.key", .ca = "/tls/ca.crt"};
//   FT_ASSIGN_OR_RETURN(const auto credentials, ServerCredentials(files));
//   builder.AddListeningPort(address, credentials);
//
// A handshake with a wrong certificate fails, so no call reaches a service.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/rpc/tls_files.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace foretoken::rpc {

// Without files: no encryption. With `ca` every client must have a certificate (mutual TLS).
// Errors: as WatchTlsFiles; INVALID_ARGUMENT if the files have no certificate.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& files);

// Without files: no encryption, unless `is_secure`. Without `ca` the system's authorities count. The server's
// certificate must have the name that the client called, or one of `identities` if those are given. Errors: those of
// WatchTlsFiles.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentials(const TlsFiles& files,
                                                                             bool is_secure = false);

// Whether only this machine reaches HOST:PORT: localhost, 127.0.0.0/8 or ::1.
bool IsLoopback(absl::string_view address);

}  // namespace foretoken::rpc
