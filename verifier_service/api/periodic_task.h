// SPDX-License-Identifier: Apache-2.0
// Calls a function once per period on its own thread.
//
//   PeriodicTask watch(absl::Seconds(1), [&] { LookAfterTheEngine(); });
//
// Threads: the task runs on its own thread. The destructor waits for a run that is under way.
#pragma once

#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace foretoken::verifier {

class PeriodicTask {
 public:
  PeriodicTask(absl::Duration period, std::function<void()> task)
      : period_(period), task_(std::move(task)), thread_([this] { Run(); }) {}
  ~PeriodicTask() {
    {
      absl::MutexLock lock(&mutex_);
      is_stopping_ = true;
    }
    thread_.join();
  }
  PeriodicTask(const PeriodicTask&) = delete;
  PeriodicTask& operator=(const PeriodicTask&) = delete;

 private:
  void Run() {
    while (!StopsWithin(period_)) task_();
  }
  bool StopsWithin(absl::Duration time) {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&is_stopping_), time);
  }

  const absl::Duration period_;
  const std::function<void()> task_;
  absl::Mutex mutex_;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last, because it uses the members above
};

}  // namespace foretoken::verifier
