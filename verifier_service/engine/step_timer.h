// SPDX-License-Identifier: Apache-2.0
// Divides the time of the engine's thread into phases. Every moment belongs to one phase.
//
//   timer.Enter(StepPhase::kForward);
//   ...                                  // this time belongs to the forward pass
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
  kHost,       // the engine's own work on the CPU
  kProposals,  // waiting for trees
  kForward,    // enqueueing the forward pass; on a CPU the pass itself
  kMasks,      // making the masks of rows with a grammar; on a device, behind the forward pass
  kDraw,       // enqueueing the draw; on a CPU the draw itself
  kPrepare,    // host work between launch and finish
  kDevice,     // waiting for the step's results
  kMove,       // moving accepted K/V
};

class StepTimer {
 public:
  explicit StepTimer(Clock now) : now_(std::move(now)), entered_(now_()) {}

  // Time from now on belongs to this phase.
  void Enter(StepPhase phase) {
    const absl::Time now = now_();
    ms_[static_cast<size_t>(phase_)] += absl::ToDoubleMilliseconds(now - entered_);
    entered_ = now;
    phase_ = phase;
  }

  // The time at which the current phase began.
  absl::Time entered() const { return entered_; }
  // The time spent in a phase since the last Clear. The current phase counts only up to its latest Enter.
  double ms(StepPhase phase) const { return ms_[static_cast<size_t>(phase)]; }
  void Clear() { ms_ = {}; }

 private:
  Clock now_;
  absl::Time entered_;
  StepPhase phase_ = StepPhase::kIdle;
  std::array<double, 9> ms_ = {};
};

}  // namespace foretoken::verifier
