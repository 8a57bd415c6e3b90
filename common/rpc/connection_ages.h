// SPDX-License-Identifier: Apache-2.0
// Tells a call whether its connection may close with it, because it has reached ServerOptions::max_connection_age.
//
//   ConnectionAges ages(absl::Minutes(5));
//   ages.BeginCall(context.peer(), Clock::now());
//   if (ages.EndCall(context.peer(), Clock::now())) ...  // then the client should read its output before the end
//
// gRPC asks a client for a new connection at an age of its own choice, within a tenth of the limit, and closes the old
// connection with its last call. A server does not see when a connection began, so its first call counts. The
// object remembers at most 65,536 connections without a call. It then forgets them all, and a forgotten connection
// counts as new at its next call.
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace foretoken::rpc {

class ConnectionAges {
 public:
  using Clock = std::chrono::steady_clock;

  // Without a limit no connection closes.
  explicit ConnectionAges(std::optional<absl::Duration> max_age);

  void BeginCall(const std::string& peer, Clock::time_point now);
  // Call it once for each BeginCall. Returns whether the connection may close with this call: no other call is on it,
  // and it is about as old as it may become.
  bool EndCall(const std::string& peer, Clock::time_point now);

  size_t num_connections() const;

 private:
  struct Connection {
    Clock::time_point began;
    int num_calls = 0;
  };

  // Whether gRPC has closed the connection if no call is on it.
  bool IsOver(const Connection& connection, Clock::time_point now) const;

  const std::optional<absl::Duration> max_age_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Connection> connections_ ABSL_GUARDED_BY(mutex_);  // by peer
  size_t sweep_size_ ABSL_GUARDED_BY(mutex_) = 0;  // at which connections that are over are forgotten
};

}  // namespace foretoken::rpc
