// SPDX-License-Identifier: Apache-2.0
// The PEM files of one side of TLS, and copies of them that are always complete and go together.
//
// gRPC ends the process if it reads an empty certificate or key, and refuses every handshake after it has read half a
// file or the key of another certificate. Such files are there for moments, while somebody copies new ones over them,
// or for days, after a mistake. So gRPC reads copies. They are made again when the files have changed, have then stayed
// the same for a second, and are right; otherwise the former copies stay, and the log says why, once. The second is for
// a file of several certificates that somebody is writing: its first half alone may be right.
//
//   FT_ASSIGN_OR_RETURN(const TlsCopies copies, WatchTlsFiles(files));
//   FileWatcherCertificateProvider(copies.identity, copies.identity, copies.ca, ...)
//
// The copies are in memory: no file holds a key that its owner has not put there.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace foretoken::rpc {

// The TLS of one side of a connection. All empty: none.
struct TlsFiles {
  std::string certificate, key;  // its own; both or none
  std::string ca;                // certificates of the authorities that the peer's certificate must come from
  // The identities of peers that may connect, as URI or DNS names in their certificates, for example
  // spiffe://cluster/ns/llm/sa/proposer. A name with "://" is a URI. Empty: every peer whose certificate comes from
  // `ca`.
  std::vector<std::string> identities = {};
  absl::Duration refresh = absl::Seconds(10);  // between looks at the files, at least 1 s

  bool is_used() const { return !certificate.empty() || !key.empty() || !ca.empty() || !identities.empty(); }
};

// INVALID_ARGUMENT if a file is missing or unreadable, or if the files do not go together. A key must not need a
// passphrase.
absl::Status CheckTls(const TlsFiles& files);

// Paths that a library of TLS can read at any time. A change takes place between two of its reads.
struct TlsCopies {
  std::string identity;  // the certificates, and the key behind them; empty: none
  std::string ca;        // empty: none
};

// Copies the files now, and again whenever they change, until the process ends. For files that it has copied before
// there are always copies, also while the files cannot be used. Errors: as CheckTls; INTERNAL if the system gives no
// memory for the copies.
absl::StatusOr<TlsCopies> WatchTlsFiles(const TlsFiles& files);

}  // namespace foretoken::rpc
