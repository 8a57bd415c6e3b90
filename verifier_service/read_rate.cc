// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/read_rate.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "kernels/make_backend.h"

namespace foretoken::verifier {
namespace {

constexpr size_t kMinBound = size_t{256} << 20;
constexpr size_t kBoundPerThread = size_t{32} << 20;  // more than a core's own cache
constexpr int kNumPasses = 4;                         // the first also brings the pages in

uint64_t Sum(std::span<const uint64_t> words) {
  uint64_t sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= words.size(); i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : sums) sum += lane;
  return sum;
}

}  // namespace

double MeasureReadRate(size_t num_bytes, int num_threads) {
  using Clock = std::chrono::steady_clock;
  const auto count = static_cast<size_t>(kernels::NumCpuThreads(num_threads));
  const size_t bound = std::max(kMinBound, count * kBoundPerThread);
  const size_t share = std::max<size_t>(1, std::min(num_bytes, bound) / sizeof(uint64_t) / count);
  const std::vector<uint64_t> words(share * count, 1);
  std::atomic<uint64_t> sum{0};  // keeps the reads
  std::vector<Clock::time_point> ends;
  std::barrier pass(static_cast<std::ptrdiff_t>(count), [&]() noexcept { ends.push_back(Clock::now()); });
  ends.reserve(kNumPasses + 1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, own = std::span(words).subspan(i * share, share)] {
      pass.arrive_and_wait();
      for (int k = 0; k < kNumPasses; ++k) {
        sum += Sum(own);
        pass.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  double best = 0;
  for (int k = 0; k < kNumPasses; ++k) {
    const double seconds = std::chrono::duration<double>(ends[k + 1] - ends[k]).count();
    best = std::max(best, static_cast<double>(words.size() * sizeof(uint64_t)) / std::max(seconds, 1e-9));
  }
  return sum.load() == 0 ? 0 : best;
}

}  // namespace foretoken::verifier
