// SPDX-License-Identifier: Apache-2.0
// The processor time that a container may use. The kernel stops all threads of a group that has used its share, so more
// threads than cores of quota only wait for each other.
// Source: the kernel's documentation of control groups, version 2: cpu.max, "QUOTA PERIOD" in microseconds, or "max".
#pragma once

#include <optional>
#include <string>

namespace foretoken::kernels {

// The smallest quota of this process's group and of the groups around it that it can see, in cores. Unset: no group has
// one, or the machine does not show it. `root` stands in for the machine's "/" in tests.
std::optional<double> CpuQuota(const std::string& root = "");

}  // namespace foretoken::kernels
