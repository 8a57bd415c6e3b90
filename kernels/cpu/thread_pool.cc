// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace foretoken::kernels::cpu {
namespace {

// About 50 us of pauses: longer than the gap between two ops of a step, shorter than anyone would notice.
constexpr int kNumSpins = 2000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  generation_.fetch_add(1, std::memory_order_release);
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
  num_busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  RunTasks(0);
  // Every worker must have left the loop before its fields may be written again.
  for (int spin = 0; num_busy_.load(std::memory_order_acquire) != 0; ++spin) {
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

void ThreadPool::Work(int thread_idx) {
  uint32_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kNumSpins && generation_.load(std::memory_order_acquire) == seen; ++spin) Pause();
    generation_.wait(seen, std::memory_order_acquire);
    ++seen;  // loops follow one another: the caller waits for num_busy_, so none can be missed
    if (stopping_.load()) return;
    RunTasks(thread_idx);
    num_busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace foretoken::kernels::cpu
