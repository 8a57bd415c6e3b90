// SPDX-License-Identifier: Apache-2.0
#include "client/commands/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <ctime>
#include <optional>
#include <utility>

#include "common/base/steady_clock.h"

namespace foretoken::client {
namespace {

sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);  // sigtimedwait takes ignored signals, too
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// Returns the next signal. Unset: none came until `end`, or this thread has to stop.
std::optional<int> AwaitSignal(const std::stop_token& stop, const sigset_t& signals,
                               absl::Time end = absl::InfiniteFuture()) {
  constexpr timespec kPoll = {.tv_sec = 0, .tv_nsec = 20'000'000};  // how long an orderly end may wait for this thread
  while (!stop.stop_requested() && SteadyNow() < end) {
    if (const int signal = sigtimedwait(&signals, nullptr, &kPoll); signal > 0) return signal;
  }
  return std::nullopt;
}

}  // namespace

InterruptWatcher::InterruptWatcher(Cancellation& cancellation, absl::Duration patience)
    : thread_([signals = BlockSignals(), &cancellation, patience](const std::stop_token& stop) {
        if (!AwaitSignal(stop, signals).has_value()) return;
        cancellation.Cancel();
        const absl::Time first = SteadyNow();
        while (true) {
          const std::optional<int> further = AwaitSignal(stop, signals, first + patience);
          if (stop.stop_requested()) return;
          // `timeout` signals the process and then its group, which is one wish. A terminal's end comes several times.
          const bool is_same_wish =
              further == SIGHUP || (further.has_value() && SteadyNow() - first < absl::Milliseconds(300));
          if (!is_same_wish) _exit(kInterruptedExitCode);
        }
      }) {}

InterruptWatcher::InterruptWatcher(std::function<void(int)> on_signal)
    : thread_([signals = BlockSignals(), on_signal = std::move(on_signal)](const std::stop_token& stop) {
        while (const std::optional<int> signal = AwaitSignal(stop, signals)) on_signal(*signal);
      }) {}

}  // namespace foretoken::client
