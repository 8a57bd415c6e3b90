// SPDX-License-Identifier: Apache-2.0
// A barrier for a fixed number of threads that meet many times per step. After the barrier every thread sees all that
// any thread wrote before it.
//
// A waiting thread spins for a moment, because the others arrive within microseconds, and then sleeps. It must sleep:
// with more threads than cores, the others cannot arrive before.
#pragma once

#include <atomic>
#include <cstdint>

namespace foretoken::kernels {

class Barrier {
 public:
  explicit Barrier(int num_threads) : num_threads_(num_threads) {}
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  // Returns when all threads have arrived.
  void Wait();

 private:
  const int num_threads_;
  alignas(64) std::atomic<int> num_present_{0};
  alignas(64) std::atomic<uint32_t> meeting_{0};
};

}  // namespace foretoken::kernels
