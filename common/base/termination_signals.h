// SPDX-License-Identifier: Apache-2.0
// SIGTERM and SIGINT in a service. While the service loads, a signal ends it at once. While it serves, the first signal
// begins a drain, and the next one ends it at once. A process that ends at once has the exit code 128 + the signal and
// runs no destructor.
//
//   BlockTerminationSignals();  // before any thread exists
//   std::optional<EndOnSignal> loading(std::in_place);
//   ...                         // loads a model
//   loading.reset();
//   const int signal = AwaitTerminationSignal();
//   ...                         // drains
//
// A signal between two of these calls waits for the next one.
#pragma once

#include <thread>

namespace foretoken::base {

// Threads inherit the block, so no thread that starts later takes a signal by accident.
void BlockTerminationSignals();

// As long as it lives, one of the blocked signals ends the process at once. Its destructor may take 20 ms.
class EndOnSignal {
 public:
  EndOnSignal();

 private:
  std::jthread thread_;
};

// Returns the first signal. From then on a further one ends the process at once, for as long as the calling thread
// lives.
int AwaitTerminationSignal();

}  // namespace foretoken::base
