// SPDX-License-Identifier: Apache-2.0
#include "common/base/termination_signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <ctime>

#include "kernels/check.h"

namespace foretoken::base {
namespace {

sigset_t TerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

[[noreturn]] void EndAtOnce(int signal) { _exit(128 + signal); }

}  // namespace

void BlockTerminationSignals() {
  const sigset_t signals = TerminationSignals();
  FT_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
}

EndOnSignal::EndOnSignal()
    : thread_([](const std::stop_token& stop) {
        constexpr timespec kLongestWait = {.tv_sec = 0, .tv_nsec = 20'000'000};
        const sigset_t signals = TerminationSignals();
        while (!stop.stop_requested()) {
          if (const int signal = sigtimedwait(&signals, nullptr, &kLongestWait); signal > 0) EndAtOnce(signal);
        }
      }) {}

int AwaitTerminationSignal() {
  const sigset_t signals = TerminationSignals();
  int signal = 0;
  FT_CHECK(sigwait(&signals, &signal) == 0);
  // The default action would not do: process 1 of a container never gets a signal that has no handler.
  struct sigaction action = {};
  action.sa_handler = EndAtOnce;
  for (const int further : {SIGTERM, SIGINT}) FT_CHECK(sigaction(further, &action, nullptr) == 0);
  FT_CHECK(pthread_sigmask(SIG_UNBLOCK, &signals, nullptr) == 0);
  return signal;
}

}  // namespace foretoken::base
