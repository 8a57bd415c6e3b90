// SPDX-License-Identifier: Apache-2.0
// The control groups that bound what this process may use of its machine, as in a container.
// Source: the kernel's documentation of control groups, version 2.
#pragma once

#include <string>
#include <vector>

namespace foretoken::kernels {

// The folders of this process's group and of the groups around it that it can see, the innermost first. `root` stands
// in for the machine's "/" in tests.
std::vector<std::string> ControlGroups(const std::string& root = "");

}  // namespace foretoken::kernels
