// SPDX-License-Identifier: Apache-2.0
// Ends the process after its device has failed: a call of the CUDA runtime, or a transport between ranks. The process
// cannot continue, and a restart is cheap. But it first tells the clients that wait for an answer.
//
//   SetDeviceFailureHandler([&](const std::string& what) { FailTheCallsInFlight(); });
//   ...
//   EndOnDeviceFailure("matmul.cu:80: Launch(...): an illegal memory access was encountered, rank 1 on GPU 1");
//
// The process has one handler, like std::set_terminate, because the code that finds a failure knows nothing of calls.
// Threads: any. The handler runs on a thread of its own. It must not wait for the failing thread, nor for a thread that
// waits for the failing thread, as other ranks do.
#pragma once

#include <functional>
#include <string>

namespace foretoken::kernels {

using DeviceFailureHandler = std::function<void(const std::string& what)>;

// Sets the handler from now on; null: none. Does not return once a failure is being handled.
void SetDeviceFailureHandler(DeviceFailureHandler handler);

// Prints `what`, gives the handler a few seconds, and ends the process. If several threads fail, only the first failure
// is reported.
[[noreturn]] void EndOnDeviceFailure(const std::string& what);

}  // namespace foretoken::kernels
