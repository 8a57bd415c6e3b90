// SPDX-License-Identifier: Apache-2.0
// Turns Ctrl-C and SIGTERM into a Cancellation. A second signal ends the process at once. Construct it before any other
// thread starts, because new threads inherit the blocked signals.
#pragma once

#include <thread>

#include "client/cancellation.h"

namespace foretoken::client {

// The exit code that a shell expects after Ctrl-C.
inline constexpr int kInterruptedExitCode = 130;

class InterruptWatcher {
 public:
  // `cancellation` must outlive this.
  explicit InterruptWatcher(Cancellation& cancellation);

 private:
  std::jthread thread_;
};

}  // namespace foretoken::client
