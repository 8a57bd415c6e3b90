// SPDX-License-Identifier: Apache-2.0
// The device of suites that hold for every device, such as the exactness suites: "cpu", but in a binary that is linked
// with tests/testing/gpu/test_device.cc, where it is "cuda".
#pragma once

#include <string>

namespace foretoken::testing {

std::string TestDevice();

}  // namespace foretoken::testing
