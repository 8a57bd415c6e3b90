// SPDX-License-Identifier: Apache-2.0
// Tells an engine that hangs from one that works or has nothing to do. The engine's thread beats once a step; an engine
// that has work and does not beat for the timeout has stalled, and has recovered with the next beat.
//
//   StallDetector detector(absl::Seconds(30));
//   if (detector.IsStalled(engine.pulse(), StallDetector::Clock::now())) ...  // asked every now and then
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace foretoken::verifier {

// What an engine's thread is doing.
struct Pulse {
  uint64_t num_beats = 0;  // steps begun
  bool is_idle = true;     // waits for requests
};

class StallDetector {
 public:
  using Clock = std::chrono::steady_clock;

  explicit StallDetector(absl::Duration timeout) : timeout_(absl::ToChronoNanoseconds(timeout)) {}

  // `now` does not go back from one call to the next.
  bool IsStalled(const Pulse& pulse, Clock::time_point now) {
    if (pulse.is_idle || !last_beat_ || pulse.num_beats != num_beats_) {
      num_beats_ = pulse.num_beats;
      last_beat_ = now;
    }
    return now - *last_beat_ >= timeout_;
  }

 private:
  const Clock::duration timeout_;
  uint64_t num_beats_ = 0;
  std::optional<Clock::time_point> last_beat_;  // when it was first seen
};

}  // namespace foretoken::verifier
