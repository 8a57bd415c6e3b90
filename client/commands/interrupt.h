// SPDX-License-Identifier: Apache-2.0
// Turns Ctrl-C and SIGTERM into a Cancellation, or into a call of a function. Construct it before any other thread
// starts, because new threads inherit the blocked signals.
#pragma once

#include <functional>
#include <thread>

#include "client/cancellation.h"

namespace foretoken::client {

// The exit code that a shell expects after Ctrl-C.
inline constexpr int kInterruptedExitCode = 130;

class InterruptWatcher {
 public:
  // A second signal ends the process at once, unless it comes with the first. `cancellation` must outlive this.
  explicit InterruptWatcher(Cancellation& cancellation);
  // Calls the function for each signal, on a thread of its own.
  explicit InterruptWatcher(std::function<void()> on_signal);

 private:
  std::jthread thread_;
};

}  // namespace foretoken::client
