// SPDX-License-Identifier: Apache-2.0
// Measures where the time of the engine's thread goes: every moment belongs to one named phase.
//
//   timer.Enter(StepPhase::kForward);
//   ...                                  // this time is the forward pass's
//   timer.Enter(StepPhase::kHost);
//
// Threads: the engine's.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "absl/time/time.h"
#include "common/base/steady_clock.h"

namespace foretoken::verifier {

enum class StepPhase {
  kIdle,       // no sequence runs
  kHost,       // the engine's own work
  kProposals,  // waiting for trees
  kForward,    // enqueueing the forward pass; on a CPU the pass itself
  kDraw,       // the same for the draw
  kPrepare,    // host work between launch and finish
  kDevice,     // waiting for the step's results
  kMove,       // moving accepted K/V
};

class StepTimer {
 public:
  explicit StepTimer(Clock now) : now_(std::move(now)), entered_(now_()) {}

  // From now on the time belongs to this phase.
  void Enter(StepPhase phase) {
    const absl::Time now = now_();
    ms_[static_cast<size_t>(phase_)] += absl::ToDoubleMilliseconds(now - entered_);
    entered_ = now;
    phase_ = phase;
  }

  // When the current phase was entered.
  absl::Time entered() const { return entered_; }
  // Time of a phase since the last Clear, without the current stay.
  double ms(StepPhase phase) const { return ms_[static_cast<size_t>(phase)]; }
  void Clear() { ms_ = {}; }

 private:
  Clock now_;
  absl::Time entered_;
  StepPhase phase_ = StepPhase::kIdle;
  std::array<double, 8> ms_ = {};
};

}  // namespace foretoken::verifier
