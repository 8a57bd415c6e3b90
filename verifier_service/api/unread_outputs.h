// SPDX-License-Identifier: Apache-2.0
// How many bytes of output wait for clients that have not read them, over all calls, and the bound on it. Beyond the
// bound the call with the most unread bytes has to end: a client that reads is never it while another does not.
//
//   UnreadOutputs unread(/*max_bytes=*/int64_t{256} << 20);
//   if (const std::optional<Ticket> ticket = unread.Set(ticket, outbox.num_bytes())) End(*ticket);
//
// Bytes are those of messages as they are sent, about. Threads: any.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "verifier_service/engine/request.h"

namespace foretoken::verifier {

// What clients may leave unread before their calls end with RESOURCE_EXHAUSTED.
struct UnreadLimits {
  int64_t max_bytes = int64_t{256} << 20;             // over all calls; beyond, the call with the most ends
  absl::Duration max_write_time = absl::Seconds(30);  // within which a client takes a message
};

class UnreadOutputs {
 public:
  explicit UnreadOutputs(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // So many bytes of this call are unread now. Returns the call that has to end, where all together are too many.
  std::optional<Ticket> Set(Ticket ticket, int64_t num_bytes);

  struct Totals {
    int64_t num_calls = 0;  // with unread bytes
    int64_t num_bytes = 0;
  };
  Totals totals() const;

 private:
  const int64_t max_bytes_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<Ticket, int64_t> num_bytes_ ABSL_GUARDED_BY(mutex_);  // not 0
  int64_t total_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace foretoken::verifier
