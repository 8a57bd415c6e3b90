// SPDX-License-Identifier: Apache-2.0
// While it lives, a device that fails does not take the calls in flight with it unsaid: they end with UNAVAILABLE, new
// ones are refused, and then the process ends, for its supervisor to restart (kernels/device_failure.h). The engine is
// not asked for anything: it may be what failed, or wait for who did.
//
//   DeviceFailureGuard guard(*service, [&] { engine->Drain(); });
#pragma once

#include <functional>

#include "verifier_service/api/generation_service.h"

namespace foretoken::verifier {

class DeviceFailureGuard {
 public:
  // The service outlives it. `refuse_calls` is called on any thread.
  DeviceFailureGuard(GenerationService& service, std::function<void()> refuse_calls);
  ~DeviceFailureGuard();
  DeviceFailureGuard(const DeviceFailureGuard&) = delete;
  DeviceFailureGuard& operator=(const DeviceFailureGuard&) = delete;
};

}  // namespace foretoken::verifier
