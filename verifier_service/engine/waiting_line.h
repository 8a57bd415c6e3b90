// SPDX-License-Identifier: Apache-2.0
// The line of requests that wait to run. A request's place is the time since which it waits, and a level of priority
// counts as `priority_aging` of waiting. So a higher priority goes first, and a request that has waited for long goes
// before new ones of any priority: none waits for ever. When a sample of a request begins, the request's others go to
// the line's end, as if they came now: requests take turns, however many samples they have. A preempted sample comes
// back to the place that it began from.
//
// Cost: O(log n) for each call. Threads: the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/time/time.h"
#include "verifier_service/engine/active_request.h"
#include "verifier_service/engine/sequence.h"

namespace foretoken::verifier {

class WaitingLine {
 public:
  struct Entry {
    std::shared_ptr<ActiveRequest> active;
    Sequence* preempted = nullptr;  // null: the samples that have not begun
    absl::Time since;               // when it came, or its request last began a sample
  };
  using Entries = std::map<LinePlace, Entry>;

  explicit WaitingLine(absl::Duration priority_aging) : priority_aging_(priority_aging) {}

  const Entries& entries() const { return entries_; }

  // The samples that have not begun.
  void Join(std::shared_ptr<ActiveRequest> active, absl::Time now);
  void Return(Sequence& preempted, absl::Time now);
  // A sample of this entry begins. Returns how long it has waited.
  absl::Duration Begin(LinePlace place, absl::Time now);
  // A request's samples that have not begun, or a preempted sequence, wait no longer. Running ones are left alone.
  void Leave(ActiveRequest& active);
  void Leave(const Sequence& sequence) { entries_.erase(sequence.line_place); }

  // What counts when one of two sequences must make room: the priority, and a level for each priority_aging of waiting.
  int64_t EffectivePriority(const Sequence& sequence) const;

 private:
  const absl::Duration priority_aging_;
  Entries entries_;
  uint64_t next_number_ = 0;
};

}  // namespace foretoken::verifier
