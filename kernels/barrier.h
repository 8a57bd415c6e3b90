// SPDX-License-Identifier: Apache-2.0
// A barrier for a fixed number of threads that meet many times per step. What a thread wrote before it came is seen by
// all of them after it.
//
// Who waits spins for a moment, because the others come within microseconds, then sleeps: where threads are more than
// cores, the others cannot come before.
#pragma once

#include <atomic>
#include <cstdint>

namespace foretoken::kernels {

class Barrier {
 public:
  explicit Barrier(int num_threads) : num_threads_(num_threads) {}
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  // Returns when all threads have come.
  void Wait();

 private:
  const int num_threads_;
  alignas(64) std::atomic<int> num_present_{0};
  alignas(64) std::atomic<uint32_t> meeting_{0};
};

}  // namespace foretoken::kernels
