// SPDX-License-Identifier: Apache-2.0
// Where committed test data lies: SourcePath("tests/cases/x.json") is absolute wherever the test runs.
#pragma once

#include <string>
#include <string_view>

namespace foretoken::testing {

inline std::string SourcePath(std::string_view relative) {
  return std::string(FORETOKEN_SOURCE_DIR) + "/" + std::string(relative);
}

}  // namespace foretoken::testing
