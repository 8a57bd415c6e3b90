// SPDX-License-Identifier: Apache-2.0
#include "client/commands/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <ctime>

namespace foretoken::client {

InterruptWatcher::InterruptWatcher(Cancellation& cancellation) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::jthread([signals, &cancellation](const std::stop_token& stop) {
    constexpr timespec kPoll = {.tv_sec = 0,
                                .tv_nsec = 20'000'000};  // how long an orderly end may wait for this thread
    while (!stop.stop_requested()) {
      if (sigtimedwait(&signals, nullptr, &kPoll) < 0) continue;
      if (cancellation.cancelled()) _exit(kInterruptedExitCode);
      cancellation.Cancel();
    }
  });
}

}  // namespace foretoken::client
