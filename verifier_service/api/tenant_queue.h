// SPDX-License-Identifier: Apache-2.0
// Work that is too slow for gRPC's threads: requests are parsed, and their response formats are compiled, before the
// engine has them, and texts are looked up. Encoding a megabyte of text must not delay the writes of other calls.
// Tenants take turns, so a tenant that sends much delays its own requests and not those of others. Every tenant weighs
// the same.
//
//   queue.Push({.tenant = "team", .ticket = ticket, .cost = num_bytes}, [] { ... });
//   if (queue.Remove(ticket)) ...  // the work has not begun and never will
//
// The queue forgets a tenant without work, waiting or running. Nothing bounds the queue: its callers do.
// Threads: any. Work runs on threads of the queue. The destructor finishes all pushed work.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "verifier_service/engine/fair_turns.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

class TenantQueue {
 public:
  using Work = absl::AnyInvocable<void()>;

  explicit TenantQueue(int num_threads);
  ~TenantQueue();

  struct Entry {
    std::string tenant;
    Ticket ticket = 0;  // unique; a tenant's lowest ticket goes first
    double cost = 1;    // compared with other work of this queue
  };
  void Push(const Entry& entry, Work work);
  // Removes the work if it is still waiting, and returns whether it was. Removed work is destroyed before the return.
  bool Remove(Ticket ticket);

 private:
  struct Job {
    Work work;
    double cost = 1;
  };
  struct Tenant {
    TurnAccount account;
    std::map<Ticket, Job> waiting;
    int num_running = 0;
  };
  using Tenants = std::map<std::string, Tenant>;

  void Run();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_stopping_ || !turns_.order().empty(); }
  Tenants::iterator NextTenant() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes a job out of a tenant's line.
  Job Take(Tenant& tenant, std::map<Ticket, Job>::iterator job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetIfIdle(Tenants::iterator tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  Tenants tenants_ ABSL_GUARDED_BY(mutex_);  // with work
  FairTurns turns_ ABSL_GUARDED_BY(mutex_);  // of tenants with waiting work
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace foretoken::verifier
