// SPDX-License-Identifier: Apache-2.0
// Detects an engine that hangs. The engine's thread beats once per step, and once for each expert that a step reads
// from the model's files, since a step that reads many works, however long it takes. An engine with work has stalled if
// it does not beat within the timeout, and hangs after twice the timeout. It has recovered with the next beat. An idle
// engine never stalls.
//
//   StallDetector detector(absl::Seconds(30));
//   if (detector.Look(engine.pulse(), StallDetector::Clock::now()) == EngineState::kHangs) ...  // periodically
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
  uint64_t num_beats = 0;  // steps begun, and experts read
  bool is_idle = true;     // waits for requests
};

enum class EngineState { kSteps, kStalled, kHangs };

class StallDetector {
 public:
  using Clock = std::chrono::steady_clock;

  explicit StallDetector(absl::Duration timeout) : timeout_(absl::ToChronoNanoseconds(timeout)) {}

  // `now` does not go back from one call to the next.
  EngineState Look(const Pulse& pulse, Clock::time_point now) {
    if (pulse.is_idle || !last_beat_ || pulse.num_beats != num_beats_) {
      num_beats_ = pulse.num_beats;
      last_beat_ = now;
    }
    const Clock::duration silence = now - *last_beat_;
    if (silence >= 2 * timeout_) return EngineState::kHangs;
    return silence >= timeout_ ? EngineState::kStalled : EngineState::kSteps;
  }

 private:
  const Clock::duration timeout_;
  uint64_t num_beats_ = 0;
  std::optional<Clock::time_point> last_beat_;  // when the current num_beats_ was first seen
};

}  // namespace foretoken::verifier
