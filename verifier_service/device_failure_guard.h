// SPDX-License-Identifier: Apache-2.0
// Handles the failure of a device, as long as the guard exists. Calls in flight end with UNAVAILABLE, new calls are
// refused, and then the process ends, so that its supervisor restarts it (kernels/device_failure.h). The guard does not
// call the engine, because the engine may have failed itself or may wait for the device.
//
//   DeviceFailureGuard guard(*calls, [&] { engine->Drain(); });
#pragma once

#include <functional>

#include "verifier_service/api/generate_calls.h"

namespace foretoken::verifier {

class DeviceFailureGuard {
 public:
  // The calls outlive the guard. Any thread may call `refuse_calls`.
  DeviceFailureGuard(GenerateCalls& calls, std::function<void()> refuse_calls);
  ~DeviceFailureGuard();
  DeviceFailureGuard(const DeviceFailureGuard&) = delete;
  DeviceFailureGuard& operator=(const DeviceFailureGuard&) = delete;
};

}  // namespace foretoken::verifier
