// SPDX-License-Identifier: Apache-2.0
// The memory that this process can still take before the system ends a process for want of it. Memory of files counts
// as free, because the system gives it back.
// Source: proc(5), MemAvailable, MemTotal and SwapTotal; the kernel's documentation of control groups, version 2:
// memory.max, memory.swap.max, memory.current and memory.stat.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace foretoken::kernels {

// In bytes: the least that the machine and the control groups around the process leave. Unset: the machine does not
// show it. `root` stands in for the machine's "/" in tests.
std::optional<int64_t> FreeMemory(const std::string& root = "");

// The same if nothing used memory: all of the machine's and of the groups', and what can be swapped out.
std::optional<int64_t> WholeMemory(const std::string& root = "");

}  // namespace foretoken::kernels
