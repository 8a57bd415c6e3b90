// SPDX-License-Identifier: Apache-2.0
// The bearer tokens of clients. A file has one token per line; empty lines and lines that begin with # do not count.
// The file is read again when it has changed, so tokens can be added and revoked while the server runs. A file may be
// rewritten in place: its new contents count when two looks in a row have found it the same.
//
//   FT_ASSIGN_OR_RETURN(const std::unique_ptr<ClientTokens> tokens, ClientTokens::Load("/secrets/tokens"));
//   const base::PeriodicTask watch(ClientTokens::kLookPeriod, [&] { tokens->Look(); });
//   FT_RETURN_IF_ERROR(tokens->Check("Bearer 7f3a..."));
//
// A token is compared by its digest, with every digest of the file and without an early end, so the time of an answer
// tells nothing about the tokens.
//
// Threads: any may call Check, and one at a time Look.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/sha256.h"

namespace foretoken::verifier {

class ClientTokens {
 public:
  static constexpr size_t kMinTokenBytes = 16, kMaxTokenBytes = 4096;
  static constexpr absl::Duration kLookPeriod = absl::Seconds(1);

  // INVALID_ARGUMENT with the file if it cannot be read, has no token, or has a token that is too short or too long.
  // The error does not show the token.
  static absl::StatusOr<std::unique_ptr<ClientTokens>> Load(const std::string& path);

  // `authorization` is the value of the call's header; empty: the call has none. UNAUTHENTICATED if it names no token
  // of the file.
  absl::Status Check(absl::string_view authorization) const;

  // Reads the file again if it has changed and is the same as at the last look. A file that is unreadable or empty
  // leaves the last tokens in force; a file that holds only comments lets nobody in.
  void Look();

 private:
  using Digest = base::Sha256Digest;
  // What tells that a file has changed.
  struct Version {
    dev_t device = 0;
    ino_t inode = 0;
    int64_t size = 0, seconds = 0, nanos = 0;
    friend bool operator==(const Version&, const Version&) = default;
  };

  explicit ClientTokens(std::string path) : path_(std::move(path)) {}
  static absl::StatusOr<std::string> Read(const std::string& path);
  static absl::StatusOr<std::vector<Digest>> Parse(const std::string& path, absl::string_view contents);
  static Version VersionOf(const std::string& path);

  const std::string path_;
  Version read_;         // the version of the tokens in force, or of contents that could not be used
  Version seen_;         // at the last look
  std::string trouble_;  // that the log has named
  mutable absl::Mutex mutex_;
  std::vector<Digest> digests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::verifier
