// SPDX-License-Identifier: Apache-2.0
// The bearer tokens of clients. A file has one token per line; empty lines and lines that begin with # do not count.
// The file is read again when it changes, so tokens can be added and revoked while the server runs.
//
//   FT_ASSIGN_OR_RETURN(const std::unique_ptr<ClientTokens> tokens, ClientTokens::Load("/secrets/tokens"));
//   FT_RETURN_IF_ERROR(tokens->Check("Bearer 7f3a..."));
//
// A token is compared by its digest, with every digest of the file and without an early end, so the time of an answer
// tells nothing about the tokens.
//
// Threads: any.
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
#include "common/base/steady_clock.h"

namespace foretoken::verifier {

class ClientTokens {
 public:
  static constexpr size_t kMinTokenBytes = 16, kMaxTokenBytes = 4096;
  static constexpr absl::Duration kRefresh = absl::Seconds(1);  // between looks at the file

  // INVALID_ARGUMENT with the file if it cannot be read, has no token, or has a token that is too short or too long.
  // The error does not show the token.
  static absl::StatusOr<std::unique_ptr<ClientTokens>> Load(const std::string& path, Clock now = SteadyNow);

  // `authorization` is the value of the call's header; empty: the call has none. UNAUTHENTICATED if it names no token
  // of the file. A file that became unreadable leaves the last tokens in force, and a file without tokens lets nobody
  // in.
  absl::Status Check(absl::string_view authorization);

 private:
  using Digest = base::Sha256Digest;
  // What tells that a file has changed.
  struct Version {
    dev_t device = 0;
    ino_t inode = 0;
    int64_t size = 0, seconds = 0, nanos = 0;
    friend bool operator==(const Version&, const Version&) = default;
  };

  ClientTokens(std::string path, Clock now) : path_(std::move(path)), now_(std::move(now)) {}
  static absl::StatusOr<std::vector<Digest>> Read(const std::string& path);
  static Version VersionOf(const std::string& path);
  void Refresh() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const Clock now_;
  absl::Mutex mutex_;
  std::vector<Digest> digests_ ABSL_GUARDED_BY(mutex_);
  Version version_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::verifier
