// SPDX-License-Identifier: Apache-2.0
// The device of tests that must pass on every device, such as the exactness suites. It is "cpu", or "cuda" in a binary
// that is linked with tests/testing/gpu/test_device.cc.
#pragma once

#include <string>

namespace foretoken::testing {

std::string TestDevice();

}  // namespace foretoken::testing
