// SPDX-License-Identifier: Apache-2.0
// The device of tests that must pass on every device, such as the exactness suites. It is "cpu", or what main sets
// before any test runs: "cuda" in tests/testing/gpu/main.cc.
#pragma once

#include <string>

namespace foretoken::testing {

inline std::string& TestDevice() {
  static std::string device = "cpu";
  return device;
}

}  // namespace foretoken::testing
