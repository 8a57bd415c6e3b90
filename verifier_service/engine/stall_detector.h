// SPDX-License-Identifier: Apache-2.0
// Detects an engine that hangs. The engine's thread beats once per step. An engine with work has stalled if it does not
// beat within the timeout. It has recovered with the next beat. An idle engine never stalls.
//
//   StallDetector detector(absl::Seconds(30));
//   if (detector.IsStalled(engine.pulse(), StallDetector::Clock::now())) ...  // called periodically
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace foretoken::verifier {

// The state of an engine's thread.
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
  std::optional<Clock::time_point> last_beat_;  // when the current num_beats_ was first seen
};

}  // namespace foretoken::verifier
