// SPDX-License-Identifier: Apache-2.0
// The requests that wait until their response formats are compiled, one at a time. Tenants take turns, and one tenant
// takes at most half of the places. So a tenant that sends one costly format after the other delays its own.
//
//   const absl::Status queued = queue.Push("team", ticket, [](CompileQueue::Place place) { ... });
//   if (queue.Remove(ticket)) ...  // the work has not begun and never will
//
// Errors: RESOURCE_EXHAUSTED, GRAMMARS_FULL, if no place is free.
// Threads: any. Work runs on a thread of the queue. The destructor finishes all pushed work.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "verifier_service/engine/fair_turns.h"

namespace foretoken::verifier {

class CompileQueue {
 private:
  struct Leave {
    std::string tenant;
    void operator()(CompileQueue* queue) const { queue->GiveBack(tenant); }
  };

 public:
  // Free again when it is destroyed. Work has its place, and may give it up before its end.
  using Place = std::unique_ptr<CompileQueue, Leave>;
  using Work = absl::AnyInvocable<void(Place)>;

  explicit CompileQueue(int32_t num_places);
  ~CompileQueue();

  // Tickets are unique.
  absl::Status Push(const std::string& tenant, uint64_t ticket, Work work);
  // Removes the work if it is still waiting, and returns whether it was.
  bool Remove(uint64_t ticket);

 private:
  struct Job {
    Work work;
    Place place;
  };
  struct Tenant {
    TurnAccount account;
    std::map<uint64_t, Job> waiting;  // by ticket
    int32_t num_places = 0;           // waiting, or running and not given up
  };

  void Run();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_stopping_ || !turns_.order().empty(); }
  Job TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes a job out of a tenant's line.
  Job Take(Tenant& tenant, std::map<uint64_t, Job>::iterator job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(const std::string& tenant);

  const int32_t num_places_;
  absl::Mutex mutex_;
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);  // those with a place
  FairTurns turns_ ABSL_GUARDED_BY(mutex_);                        // of tenants with waiting work
  int32_t num_taken_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace foretoken::verifier
