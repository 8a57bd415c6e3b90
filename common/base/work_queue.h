// SPDX-License-Identifier: Apache-2.0
// A few threads for work that is too slow for gRPC's threads. For example, encoding a megabyte of text must not delay
// the writes of other calls.
//
//   queue.Push(ticket, [call] { call->Start(); });
//   if (queue.Remove(ticket)) ...  // the work has not begun and never will
//
// Threads: Push and Remove from any. The destructor finishes all pushed work.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace foretoken::base {

// The places of a bounded queue. A place is free again when it is destroyed.
class WorkPlaces {
 private:
  struct Leave {
    void operator()(std::atomic<int32_t>* num_taken) const { num_taken->fetch_sub(1); }
  };

 public:
  using Place = std::unique_ptr<std::atomic<int32_t>, Leave>;

  explicit WorkPlaces(int32_t most) : most_(most) {}
  int32_t most() const { return most_; }
  // Null if all places are taken.
  Place Take() {
    Place place(&num_taken_);
    if (num_taken_.fetch_add(1) >= most_) place.reset();
    return place;
  }

 private:
  const int32_t most_;
  std::atomic<int32_t> num_taken_{0};
};

class WorkQueue {
 public:
  explicit WorkQueue(int num_threads);
  ~WorkQueue();

  // The work with the lowest number runs first. Every thread runs one piece of work at a time. Numbers are unique.
  void Push(uint64_t number, absl::AnyInvocable<void()> work);
  // Removes the work if it is still waiting, and returns whether it was. Removed work is destroyed before the return.
  bool Remove(uint64_t number);

 private:
  void Run();
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); }

  absl::Mutex mutex_;
  std::map<uint64_t, absl::AnyInvocable<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace foretoken::base
