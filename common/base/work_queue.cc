// SPDX-License-Identifier: Apache-2.0
#include "common/base/work_queue.h"

#include <utility>

namespace foretoken::base {

WorkQueue::WorkQueue(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkQueue::~WorkQueue() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void WorkQueue::Push(uint64_t number, absl::AnyInvocable<void()> work) {
  absl::MutexLock lock(&mutex_);
  queue_.emplace(number, std::move(work));
}

bool WorkQueue::Remove(uint64_t number) {
  decltype(queue_)::node_type removed;  // destroyed without the lock, because it may end a call
  absl::MutexLock lock(&mutex_);
  removed = queue_.extract(number);
  return !removed.empty();
}

void WorkQueue::Run() {
  for (;;) {
    absl::AnyInvocable<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &WorkQueue::Ready));
      if (queue_.empty()) return;
      work = std::move(queue_.extract(queue_.begin()).mapped());
    }
    work();
  }
}

}  // namespace foretoken::base
