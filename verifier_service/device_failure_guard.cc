// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/device_failure_guard.h"

#include <string>
#include <utility>

#include "common/base/error_text.h"
#include "kernels/device_failure.h"

namespace foretoken::verifier {
namespace {

// The time for calls to receive the error. It is shorter than the time until the process ends.
constexpr absl::Duration kErrorDeliveryTime = absl::Seconds(3);

}  // namespace

DeviceFailureGuard::DeviceFailureGuard(GenerateCalls& calls, std::function<void()> refuse_calls) {
  kernels::SetDeviceFailureHandler([&calls, refuse_calls = std::move(refuse_calls)](const std::string&) {
    refuse_calls();
    calls.FailAll(base::WithReason(
        absl::UnavailableError("a device of the server has failed, and the server ends: try again"), "DEVICE_FAILED"));
    calls.WaitUntilIdle(kErrorDeliveryTime);
  });
}

DeviceFailureGuard::~DeviceFailureGuard() { kernels::SetDeviceFailureHandler(nullptr); }

}  // namespace foretoken::verifier
