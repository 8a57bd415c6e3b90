// SPDX-License-Identifier: Apache-2.0
// Calls a function once per period on its own thread.
//
//   PeriodicTask watch(absl::Seconds(1), [&] { LookAfterTheEngine(); });
//
// The period follows the steady clock. Threads: the task runs on its own thread. The destructor waits for a run that is
// under way.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/time/time.h"

namespace foretoken::base {

class PeriodicTask {
 public:
  PeriodicTask(absl::Duration period, std::function<void()> task)
      : period_(period), task_(std::move(task)), thread_([this] { Run(); }) {}
  ~PeriodicTask() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
      stopping_.notify_one();
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
    std::unique_lock lock(mutex_);
    return stopping_.wait_for(lock, absl::ToChronoNanoseconds(time), [this] { return is_stopping_; });
  }

  const absl::Duration period_;
  const std::function<void()> task_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool is_stopping_ = false;
  std::thread thread_;  // last, because it uses the members above
};

}  // namespace foretoken::base
