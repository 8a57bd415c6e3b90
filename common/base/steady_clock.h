// SPDX-License-Identifier: Apache-2.0
// The time that durations are measured by. Nobody sets this clock, so timeouts, rates and measured times stay right
// while the system's clock is moved. Only differences mean something: such a time is not for people and not for the
// wire.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "absl/time/time.h"

namespace foretoken {

// A clock as an argument: SteadyNow, or a test's own.
using Clock = std::function<absl::Time()>;

inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// Waits for a signal, at most so long, and never longer than an hour. May return early. Abseil's timed waits follow the
// system's clock, this one does not.
inline void WaitAtMost(absl::Duration duration, std::condition_variable& signal, std::unique_lock<std::mutex>& lock) {
  signal.wait_for(lock, absl::ToChronoNanoseconds(std::clamp(duration, absl::ZeroDuration(), absl::Hours(1))));
}

}  // namespace foretoken
