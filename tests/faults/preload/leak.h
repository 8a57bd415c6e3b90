// SPDX-License-Identifier: Apache-2.0
// The environment of a process that leaks (leak.cc).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace foretoken {

inline std::vector<std::string> LeakEnvironment(int64_t bytes_per_second) {
  return {absl::StrCat("LD_PRELOAD=", FORETOKEN_LEAK), absl::StrCat("LEAK_BYTES_PER_SECOND=", bytes_per_second)};
}

}  // namespace foretoken
