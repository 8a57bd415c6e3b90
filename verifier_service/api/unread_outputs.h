// SPDX-License-Identifier: Apache-2.0
// The number of output bytes that clients have not read yet, over all calls, and its bound. Beyond the bound the call
// with the most unread bytes has to end. A client that reads its output is safe while another client does not read.
//
//   UnreadOutputs unread(/*max_bytes=*/int64_t{256} << 20);
//   if (const std::optional<Ticket> ticket = unread.Set(ticket, outbox.num_bytes())) End(*ticket);
//
// Units: approximate bytes on the wire. Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

// The limits on unread output. Beyond them a call ends with RESOURCE_EXHAUSTED.
struct UnreadLimits {
  int64_t max_bytes = int64_t{256} << 20;             // over all calls; beyond it the call with the most bytes ends
  absl::Duration max_write_time = absl::Seconds(30);  // the longest time for a client to take a message
};

// Why a call ends: RESOURCE_EXHAUSTED with the reason OUTPUT_NOT_READ.
absl::Status UnreadError(absl::string_view why);
std::string NotTakenWithin(absl::Duration max_write_time);

class UnreadOutputs {
 public:
  explicit UnreadOutputs(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Sets the call's number of unread bytes. Returns the call that has to end if the sum over all calls is too large.
  std::optional<Ticket> Set(Ticket ticket, int64_t num_bytes);

  struct Totals {
    int64_t num_calls = 0;  // calls with unread bytes
    int64_t num_bytes = 0;
  };
  Totals totals() const;

 private:
  const int64_t max_bytes_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<Ticket, int64_t> num_bytes_ ABSL_GUARDED_BY(mutex_);  // only values above 0
  int64_t total_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Messages of calls other than Generate that gRPC sends at the client's pace: answers to lookups, and the pieces of the
// tokenizer. They count as unread output. One that its client does not take in time ends its call.
//
//   if (const std::optional<Ticket> other = answers.Begin(ticket, context, message.Length())) Cancel(*other);
//   answers.End(ticket);                         // in OnDone
//   answers.CancelOlderThan(absl::Seconds(30));  // from time to time
class UnreadAnswers {
 public:
  explicit UnreadAnswers(UnreadOutputs* unread) : unread_(unread) {}

  // gRPC gets a message of the call. It replaces the call's last message. Returns the call that has to end if all calls
  // together have too many unread bytes.
  std::optional<Ticket> Begin(Ticket ticket, grpc::CallbackServerContext& context, size_t num_bytes);
  // The call is done. After this its context is not used.
  void End(Ticket ticket);
  // Ends the call with the error of unread output. Does nothing if it has none.
  void Cancel(Ticket ticket, absl::string_view why);
  void CancelOlderThan(absl::Duration max_time);

 private:
  using Clock = std::chrono::steady_clock;
  struct Answer {
    grpc::CallbackServerContext* context = nullptr;
    Clock::time_point began;
  };

  UnreadOutputs* const unread_;
  absl::Mutex mutex_;
  absl::flat_hash_map<Ticket, Answer> answers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::verifier
