// SPDX-License-Identifier: Apache-2.0
// A few threads for work that would keep gRPC's own too long: a megabyte of text to encode must not delay the writes of
// other calls.
//
//   queue.Push(ticket, [call] { call->Start(); });
//   if (queue.Remove(ticket)) ...  // it has not begun, and never will
//
// Threads: Push and Remove from any. The destructor finishes what was pushed.
#pragma once

#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace foretoken::verifier {

class WorkQueue {
 public:
  explicit WorkQueue(int num_threads);
  ~WorkQueue();

  // Work of the lowest number goes first, as many at a time as there are threads. No two have the same number.
  void Push(uint64_t number, absl::AnyInvocable<void()> work);
  // Whether the work was still waiting. If so it is destroyed when this returns, with all that it holds.
  bool Remove(uint64_t number);

 private:
  void Run();
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); }

  absl::Mutex mutex_;
  std::map<uint64_t, absl::AnyInvocable<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace foretoken::verifier
