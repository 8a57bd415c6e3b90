// SPDX-License-Identifier: Apache-2.0
// How a process ends whose device fails after start: a call of the CUDA runtime that may not fail, or a transport
// between ranks. There is nothing to go on with, and a restart is cheap; but whoever waits for an answer is told first.
//
//   SetDeviceFailureHandler([&](const std::string& what) { FailTheCallsInFlight(); });
//   ...
//   EndOnDeviceFailure("matmul.cu:80: Launch(...): an illegal memory access was encountered, rank 1 on GPU 1");
//
// One for the process, as std::set_terminate's: who finds the failure is deep below those who know of calls.
// Threads: any. The handler runs on a thread of its own and may not count on the failing one, nor on any that waits for
// it: ranks do.
#pragma once

#include <functional>
#include <string>

namespace foretoken::kernels {

using DeviceFailureHandler = std::function<void(const std::string& what)>;

// From now on; null: nobody is told. Once a failure is being handled this does not return.
void SetDeviceFailureHandler(DeviceFailureHandler handler);

// Prints `what`, gives the handler a few seconds, and ends the process. Of several failures the first is told of.
[[noreturn]] void EndOnDeviceFailure(const std::string& what);

}  // namespace foretoken::kernels
