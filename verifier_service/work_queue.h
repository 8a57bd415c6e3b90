// SPDX-License-Identifier: Apache-2.0
// A few threads for work that would keep gRPC's own too long: a megabyte of text to encode must not delay the writes of
// other calls.
//
// Threads: Push from any. The destructor finishes what was pushed.
#pragma once

#include <deque>
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

  // In order of arrival, as many at a time as there are threads.
  void Push(absl::AnyInvocable<void()> work);

 private:
  void Run();
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); }

  absl::Mutex mutex_;
  std::deque<absl::AnyInvocable<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace foretoken::verifier
