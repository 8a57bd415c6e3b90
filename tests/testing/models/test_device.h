// SPDX-License-Identifier: Apache-2.0
// The device of tests that must pass on every device, such as the exactness suites. It is "cpu", or what main sets
// before any test runs: "cuda" in tests/testing/gpu/main.cc.
#pragma once

#include <string>
#include <string_view>

namespace foretoken::testing {

inline std::string& TestDevice() {
  static std::string device = "cpu";
  return device;
}

// False for models with experts on a GPU, which has no op for them. `model` is a name in tests/cases/models, or that of
// a RandomCheckpoint.
inline bool TestDeviceRuns(std::string_view model) {
  const bool has_experts =
      model.starts_with("mixtral") || model.starts_with("gpt") || model.find("moe") != std::string_view::npos;
  return !has_experts || TestDevice() == "cpu";
}

}  // namespace foretoken::testing
