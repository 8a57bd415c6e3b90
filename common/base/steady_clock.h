// SPDX-License-Identifier: Apache-2.0
// The clock for durations. Nobody sets this clock, so timeouts, rates and measured times stay right when the system's
// clock is changed. Only differences have a meaning: such a time must not be shown to people or sent on the wire.
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

// Waits for a signal for at most this duration, and never longer than an hour. May return early. Abseil's timed waits
// follow the system's clock; this wait does not.
inline void WaitAtMost(absl::Duration duration, std::condition_variable& signal, std::unique_lock<std::mutex>& lock) {
  signal.wait_for(lock, absl::ToChronoNanoseconds(std::clamp(duration, absl::ZeroDuration(), absl::Hours(1))));
}

// Waits until the condition is true, for at most this duration. Returns whether it is true.
template <typename Condition>
bool WaitAtMost(absl::Duration duration, std::condition_variable& signal, std::unique_lock<std::mutex>& lock,
                const Condition& condition) {
  const absl::Time end = SteadyNow() + duration;
  while (!condition() && SteadyNow() < end) WaitAtMost(end - SteadyNow(), signal, lock);
  return condition();
}

}  // namespace foretoken
