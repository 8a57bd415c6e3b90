// SPDX-License-Identifier: Apache-2.0
// A barrier for a fixed number of threads that meet many times per step. What a thread wrote before it came is seen by
// all of them after it.
//
// Who waits looks again and again for a moment, because the others come within microseconds, then sleeps. Between two
// looks it lets others run: where there are more threads than cores, they are those that it waits for.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace foretoken::kernels {

class Barrier {
 public:
  explicit Barrier(int num_threads) : num_threads_(num_threads) {}
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  // Returns when all threads have come.
  void Wait() {
    const uint32_t meeting = meeting_.load();  // cannot end before this thread has come
    if (num_present_.fetch_add(1) + 1 < num_threads_) {
      return AwaitEndOf(meeting);
    }
    num_present_.store(0);
    meeting_.fetch_add(1);
    meeting_.notify_all();
  }

 private:
  static constexpr int kNumLooks = 200;

  void AwaitEndOf(uint32_t meeting) const {
    for (int look = 0; look < kNumLooks; ++look) {
      if (meeting_.load() != meeting) return;
      std::this_thread::yield();
    }
    meeting_.wait(meeting);
  }

  const int num_threads_;
  alignas(64) std::atomic<int> num_present_{0};
  alignas(64) std::atomic<uint32_t> meeting_{0};
};

}  // namespace foretoken::kernels
