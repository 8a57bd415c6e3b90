// SPDX-License-Identifier: Apache-2.0
#include "client/commands/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <optional>
#include <utility>

namespace foretoken::client {

InterruptWatcher::InterruptWatcher(Cancellation& cancellation)
    : InterruptWatcher([&cancellation, first = std::optional<std::chrono::steady_clock::time_point>()]() mutable {
        const auto now = std::chrono::steady_clock::now();
        if (!first.has_value()) first = now;
        // `timeout` signals the process and then its group, which is one wish.
        if (now - *first >= std::chrono::milliseconds(300)) _exit(kInterruptedExitCode);
        cancellation.Cancel();
      }) {}

InterruptWatcher::InterruptWatcher(std::function<void()> on_signal) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::jthread([signals, on_signal = std::move(on_signal)](const std::stop_token& stop) {
    constexpr timespec kPoll = {.tv_sec = 0,
                                .tv_nsec = 20'000'000};  // how long an orderly end may wait for this thread
    while (!stop.stop_requested()) {
      if (sigtimedwait(&signals, nullptr, &kPoll) < 0) continue;
      on_signal();
    }
  });
}

}  // namespace foretoken::client
