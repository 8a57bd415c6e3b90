// SPDX-License-Identifier: Apache-2.0
// A fixed set of threads that run short parallel loops back to back.
//
// Workers spin for a moment after a loop, because the next op follows within microseconds, then sleep. Threads claim
// tasks one by one, so chance decides which thread runs a task. A task's result may depend on its number only (E1). A
// worker that wakes too late finds the loop closed, and no thread waits for that worker.
// Threads: one caller at a time; the caller works too.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace foretoken::kernels::cpu {

class ThreadPool {
 public:
  // `num_threads` counts the caller's thread.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(task, thread_idx) for every task in [0, num_tasks) and returns when all are done.
  template <typename Fn>
  void ParallelFor(int64_t num_tasks, Fn&& fn) {
    using Callable = std::remove_reference_t<Fn>;
    Run(num_tasks, const_cast<void*>(static_cast<const void*>(&fn)),
        [](void* callable, int64_t task, int thread_idx) { (*static_cast<Callable*>(callable))(task, thread_idx); });
  }

 private:
  using Trampoline = void (*)(void*, int64_t, int);
  void Run(int64_t num_tasks, void* callable, Trampoline call);
  void Work(int thread_idx);
  void RunTasks(int thread_idx);
  uint32_t AwaitChange(uint32_t seen) const;  // waits until generation_ differs from `seen`

  std::vector<std::thread> workers_;
  // The current loop. The caller writes it while the loop is closed and no worker is inside; workers inside read it.
  int64_t num_tasks_ = 0;
  void* callable_ = nullptr;
  Trampoline call_ = nullptr;
  alignas(64) std::atomic<int64_t> next_task_{0};
  // Odd: a loop is open. A worker first counts itself in, then checks that the loop is open. The caller first closes
  // the loop, then checks that no worker is inside. All four steps are sequentially consistent, so at least one side
  // sees the other.
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> num_inside_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace foretoken::kernels::cpu
