// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/base/thread_pool.h"

#include "kernels/pause.h"

namespace foretoken::kernels::cpu {
namespace {

// 20 to 80 us of pauses: longer than the gap between two ops of a step, but too short to waste much of a core's time.
constexpr int kNumSpins = 2000;

bool IsOpen(uint32_t generation) { return generation % 2 != 0; }

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  generation_.fetch_add(2);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t num_tasks, void* callable, Trampoline call) {
  if (workers_.empty() || num_tasks <= 1) {
    for (int64_t task = 0; task < num_tasks; ++task) call(callable, task, 0);
    return;
  }
  num_tasks_ = num_tasks;
  callable_ = callable;
  call_ = call;
  next_task_.store(0, std::memory_order_relaxed);
  generation_.fetch_add(1);  // opens the loop
  generation_.notify_all();
  RunTasks(0);
  generation_.fetch_add(1);  // closes the loop
  for (int spin = 0; num_inside_.load() != 0; ++spin) {
    if (spin < kNumSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::RunTasks(int thread_idx) {
  for (;;) {
    const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= num_tasks_) return;
    call_(callable_, task, thread_idx);
  }
}

uint32_t ThreadPool::AwaitChange(uint32_t seen) const {
  for (int spin = 0; spin < kNumSpins; ++spin) {
    const uint32_t generation = generation_.load();
    if (generation != seen) return generation;
    Pause();
  }
  generation_.wait(seen);
  return generation_.load();
}

void ThreadPool::Work(int thread_idx) {
  uint32_t seen = 0;
  for (;;) {
    // Before the wait, because `seen` may already be the generation with which the destructor wakes the workers.
    if (stopping_.load()) return;
    seen = AwaitChange(seen);
    if (!IsOpen(seen)) continue;
    num_inside_.fetch_add(1);
    seen = generation_.load();
    if (IsOpen(seen)) RunTasks(thread_idx);
    num_inside_.fetch_sub(1);
  }
}

}  // namespace foretoken::kernels::cpu
