// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/test_device.h"

namespace foretoken::testing {

std::string TestDevice() { return "cpu"; }

}  // namespace foretoken::testing
