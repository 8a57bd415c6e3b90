// SPDX-License-Identifier: Apache-2.0
// The line of requests that wait to run. A request's place is the start of its wait. A level of priority counts as
// `priority_aging` of waiting. So a higher priority goes first, but a request that has waited long enough goes before
// new requests of any priority. No request waits forever. When a sample of a request begins, the request's other
// samples move to the end of the line, as if they had just arrived. So requests take turns for any number of samples. A
// preempted sample returns to the place that it began from.
//
// Cost: O(log n) for each call. Threads: the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/time/time.h"
#include "verifier_service/engine/sequence.h"
#include "verifier_service/request/active_request.h"

namespace foretoken::verifier {

class WaitingLine {
 public:
  struct Entry {
    std::shared_ptr<ActiveRequest> active;
    Sequence* preempted = nullptr;  // null: the request's samples that have not begun
    absl::Time since;               // its arrival, or the last time its request began a sample
  };
  using Entries = std::map<LinePlace, Entry>;

  explicit WaitingLine(absl::Duration priority_aging) : priority_aging_(priority_aging) {}

  const Entries& entries() const { return entries_; }

  // Adds the request's samples that have not begun.
  void Join(std::shared_ptr<ActiveRequest> active, absl::Time now);
  void Return(Sequence& preempted, absl::Time now);
  // Begins a sample of this entry. Returns the time that it waited.
  absl::Duration Begin(LinePlace place, absl::Time now);
  // Removes a request's samples that have not begun, or a preempted sequence. Running sequences stay.
  void Leave(ActiveRequest& active);
  void Leave(const Sequence& sequence) { num_left_ += entries_.erase(sequence.line_place); }

  // The entries that have left the line since the start, because a sample began or was dropped.
  uint64_t num_left() const { return num_left_; }

  // The priority, plus a level for each priority_aging of waiting. The scheduler preempts the lowest.
  int64_t EffectivePriority(const Sequence& sequence) const;

 private:
  const absl::Duration priority_aging_;
  Entries entries_;
  uint64_t next_number_ = 0;
  uint64_t num_left_ = 0;
};

}  // namespace foretoken::verifier
