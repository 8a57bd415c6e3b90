// SPDX-License-Identifier: Apache-2.0
// Turns Ctrl-C and SIGTERM into a Cancellation; a second one ends the process at once. Construct it before any other
// thread starts: those inherit the blocked signals.
#pragma once

#include <thread>

#include "client/cancellation.h"

namespace foretoken::client {

// What a shell expects of a process that Ctrl-C ended.
inline constexpr int kInterruptedExitCode = 130;

class InterruptWatcher {
 public:
  // `cancellation` must outlive this.
  explicit InterruptWatcher(Cancellation& cancellation);

 private:
  std::jthread thread_;
};

}  // namespace foretoken::client
