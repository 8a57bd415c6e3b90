// SPDX-License-Identifier: Apache-2.0
// Parallel loops. If this test fails, a CPU server hangs, or computes with results that are not finished.
#include "kernels/cpu/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace foretoken::kernels::cpu {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int num_threads : {1, 2, 3, 8}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (const int64_t num_tasks : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(num_tasks);  // not atomic: ParallelFor's return orders the writes
      pool.ParallelFor(num_tasks, [&](int64_t task, int thread_idx) {
        EXPECT_GE(thread_idx, 0);
        EXPECT_LT(thread_idx, num_threads);
        ++runs[task];
      });
      EXPECT_EQ(runs, std::vector<int>(num_tasks, 1));
    }
  }
}

TEST(ThreadPool, TinyLoopsBackToBackSeeEachOthersResults) {
  ThreadPool pool(3);
  std::vector<int64_t> values(5, 0);
  for (int loop = 0; loop < 20000; ++loop) {
    pool.ParallelFor(std::ssize(values), [&](int64_t task, int) { values[task] += task; });
    if (loop % 7 == 0) values[0] += 1;  // the next loop sees the caller's own writes
  }
  EXPECT_EQ(values, (std::vector<int64_t>{2858, 20000, 40000, 60000, 80000}));
}

TEST(ThreadPool, WorkersWakeFromSleep) {
  ThreadPool pool(2);
  for (int loop = 0; loop < 20; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // long enough for the worker to stop spinning
    // Two tasks that wait for each other need two threads.
    std::atomic<int> num_arrived{0};
    pool.ParallelFor(2, [&](int64_t, int) {
      num_arrived.fetch_add(1);
      while (num_arrived.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(num_arrived.load(), 2);
  }
}

TEST(ThreadPool, ThreadsOfALoopHaveDistinctIndices) {
  ThreadPool pool(4);
  std::mutex mutex;
  std::set<int> indices;
  std::atomic<int> num_arrived{0};
  pool.ParallelFor(4, [&](int64_t, int thread_idx) {
    {
      const std::lock_guard lock(mutex);
      indices.insert(thread_idx);
    }
    num_arrived.fetch_add(1);
    while (num_arrived.load() < 4) std::this_thread::yield();
  });
  EXPECT_EQ(indices, (std::set<int>{0, 1, 2, 3}));
}

TEST(ThreadPool, EndsWhileWorkersSpinAndWhileTheySleep) {
  for (int i = 0; i < 2000; ++i) {
    ThreadPool pool(3);
    pool.ParallelFor(3, [](int64_t, int) {});
    if (i % 40 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace
}  // namespace foretoken::kernels::cpu
