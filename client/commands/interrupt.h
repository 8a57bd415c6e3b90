// SPDX-License-Identifier: Apache-2.0
// Turns Ctrl-C, SIGTERM and SIGHUP, which is the end of the terminal, into a Cancellation, or into a call of a
// function. A SIGHUP that the process ignores, as under nohup, stays ignored. Construct it before any other thread
// starts, because new threads inherit the blocked signals.
#pragma once

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "client/cancellation.h"

namespace foretoken::client {

// The exit code that a shell expects after Ctrl-C.
inline constexpr int kInterruptedExitCode = 130;

class InterruptWatcher {
 public:
  // A second signal ends the process at once, unless it comes with the first. So does the end of `patience` after the
  // first signal, because the process may wait for a reader of its output. `cancellation` must outlive this.
  explicit InterruptWatcher(Cancellation& cancellation, absl::Duration patience = absl::Seconds(1));
  // Calls the function with each signal, on a thread of its own.
  explicit InterruptWatcher(std::function<void(int)> on_signal);

 private:
  std::jthread thread_;
};

}  // namespace foretoken::client
