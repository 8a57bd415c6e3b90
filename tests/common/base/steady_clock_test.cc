// SPDX-License-Identifier: Apache-2.0
// The clock for durations. If this test fails, timeouts go wrong when somebody sets the system's clock.
#include "common/base/steady_clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace foretoken {
namespace {

TEST(SteadyClock, FollowsTheMonotonicClock) {
  const auto tick = [] { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); };
  const absl::Duration before = tick();
  const absl::Duration now = SteadyNow() - absl::UnixEpoch();
  EXPECT_LE(before, now);
  EXPECT_LE(now, tick());
}

TEST(SteadyClock, AWaitEndsWithTheSignalOrTheTime) {
  std::mutex mutex;
  std::condition_variable signal;
  std::unique_lock lock(mutex);
  const absl::Time start = SteadyNow();
  WaitAtMost(absl::Milliseconds(5), signal, lock);
  WaitAtMost(-absl::InfiniteDuration(), signal, lock);
  bool is_signalled = false;
  std::thread signaller([&] {
    const std::lock_guard inner(mutex);
    is_signalled = true;
    signal.notify_all();
  });
  while (!is_signalled) WaitAtMost(absl::InfiniteDuration(), signal, lock);
  EXPECT_LT(SteadyNow() - start, absl::Minutes(1));
  EXPECT_TRUE(WaitAtMost(absl::InfiniteDuration(), signal, lock, [&] { return is_signalled; }));
  EXPECT_FALSE(WaitAtMost(absl::Milliseconds(5), signal, lock, [] { return false; }));
  lock.unlock();
  signaller.join();
}

}  // namespace
}  // namespace foretoken
