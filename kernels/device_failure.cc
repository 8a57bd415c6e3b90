// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_failure.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

namespace foretoken::kernels {
namespace {

constexpr std::chrono::seconds kGrace{5};

// Never destroyed: a device may fail while the process shuts down.
struct Handling {
  std::mutex mutex;  // held from the first failure on
  DeviceFailureHandler handler;
};

Handling& GetHandling() {
  static Handling& handling = *new Handling;
  return handling;
}

}  // namespace

void SetDeviceFailureHandler(DeviceFailureHandler handler) {
  Handling& handling = GetHandling();
  const std::lock_guard lock(handling.mutex);
  handling.handler = std::move(handler);
}

void EndOnDeviceFailure(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::fflush(stderr);
  Handling& handling = GetHandling();
  const std::lock_guard lock(handling.mutex);  // a second failing thread waits here for the end of the process
  if (handling.handler) {
    std::promise<void> told;
    std::thread([&] {
      handling.handler(what);
      told.set_value();
    }).detach();
    told.get_future().wait_for(kGrace);
  }
  std::abort();
}

}  // namespace foretoken::kernels
